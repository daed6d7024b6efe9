"""What is known of the clients of a run that is not finished."""

from __future__ import annotations

from umbel.checks import UsageError, check
from umbel.folder import checkpoint
from umbel.folder.clients_file import Client
from umbel.folder.flower_files import names_on_the_roll
from umbel.folder.run_folder import RunFolder
from umbel.server.numbering import in_order_of_appearance


def clients_so_far(folder: RunFolder) -> list[Client]:
    """The clusters after the last checkpoint; names are known then only for runs over Flower."""
    expected = "the folder of a run: give its whole path if you change the current directory"
    check(folder.path.is_dir(), "run", str(folder.path), expected)
    try:
        labels = checkpoint.labels(folder.file("checkpoint.safetensors")).numpy()
    except UsageError:
        return []
    clusters = in_order_of_appearance(labels).tolist()
    roll = names_on_the_roll(folder.path)
    names = roll if len(roll) == len(clusters) else [*map(str, range(len(clusters)))]
    pairs = zip(names, clusters, strict=True)
    return [Client(name, number, cluster) for number, (name, cluster) in enumerate(pairs)]
