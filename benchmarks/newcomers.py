"""How often newcomers without labels get the right cluster: `python -m benchmarks.newcomers`.

Clusters are the known ones (wrists, planted groups), so that only the placing is judged. It needs
`natural/` and `mnist` in the data directory.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

import umbel
from umbel.networks import MLP

LOCAL = umbel.LocalTraining(epochs=1)


def placed(federation: umbel.Federation, clusters: Sequence[str], new: Sequence[int]) -> list[bool]:
    """Whether each of the `new` clients is placed in its cluster by a run of the others.

    Raises `UsageError` where inputs do not tell the clusters apart.
    """
    others = [client for client in range(federation.num_clients) if client not in set(new)]
    names = sorted(set(clusters))
    numbers = tuple(names.index(clusters[client]) for client in others)
    shape, outputs = federation.input_shape, federation.num_outputs
    net = umbel.Net(lambda: MLP((32,)).build(shape, outputs))
    known = federation.pick(others)
    with tempfile.TemporaryDirectory() as folder:
        run = umbel.Run(umbel.FixedClusters(clusters=numbers, local=LOCAL), known, net)
        result = run.save(Path(folder) / "run", rounds=1)
        assigned = result.assign(federation.pick(new), labelled=False, clients=known)
        of_cluster = dict(zip(result.clusters.values(), numbers, strict=True))
        found = [of_cluster[cluster] for cluster in assigned.clusters.values()]
    return [names[n] == clusters[client] for n, client in zip(found, new, strict=True)]


def watch() -> str:
    """Each wrist of each person, left out in turn."""
    federation = umbel.scenario("watch", windows_per_class=4)
    wrists = federation.attributes["wrist"]
    right = [placed(federation, wrists, [client])[0] for client in range(len(wrists))]
    return f"watch, wrists, one left out: {sum(right)} of {len(right)}"


def planted(scenario: str, seeds: int) -> str:
    """Every other client of a scenario with planted groups, under several seeds."""
    right: list[bool] = []
    refused = 0
    for seed in range(seeds):
        federation = umbel.scenario(scenario, seed=seed)
        assert federation.groups is not None
        groups = [str(group) for group in federation.groups.tolist()]
        try:
            right += placed(federation, groups, range(1, federation.num_clients, 2))
        except umbel.UsageError:
            refused += 1
    rate = f"{sum(right)} of {len(right)} newcomers placed rightly" if right else "none placed"
    return f"{scenario}, {seeds} seeds: {rate}; refused under {refused} seeds"


def main() -> None:
    """Print a line for each."""
    console = Console()
    logging.getLogger("umbel").setLevel(logging.ERROR)  # the folders of runs are thrown away
    console.print(watch())
    for scenario, seeds in (
        ("rotated-digits", 10),
        ("rotated-mnist", 2),
        ("label-swapped-digits", 10),
        ("permuted-cifar10", 2),
    ):
        console.print(planted(scenario, seeds), soft_wrap=True)


if __name__ == "__main__":
    main()
