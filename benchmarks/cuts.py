"""The distances at which a hierarchical clustering should have been cut.

`python -m benchmarks.cuts RUN` clusters the distances that a run of FL+HC has kept once more, into
every number of clusters, and shows between which two distances that number is found and how well it
agrees with the planted groups.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform
from sklearn.metrics import adjusted_rand_score

import umbel
from benchmarks.refusing import plainly
from umbel.algorithms import FLHC
from umbel.checks import check
from umbel.result.run import Result

MOST = 12
"""Numbers of clusters to consider."""


def cuts(result: Result, most: int = MOST) -> Iterator[tuple[int, float, float, float]]:
    """Numbers of clusters, the distances from and below which they are found, and their ARI.

    Raises `UsageError` for a run of another method, or one that has not clustered yet.
    """
    method: Any = result.experiment.algorithm
    state: Any = result.state
    clustered = isinstance(method, FLHC) and len(state.compared) > 0
    check(clustered, "run", result.experiment.name, "a run of fl-hc that has clustered")
    distance = state.distance.double().numpy()
    tree = linkage(squareform(distance, checks=False), method.linkage)
    groups = [result.clients[client].group for client in state.compared.tolist()]
    merges = [0.0, *tree[:, 2], float("inf")]
    for number in range(min(most, len(distance)), 0, -1):
        labels = fcluster(tree, number, "maxclust")
        agreement = adjusted_rand_score(groups, labels)
        yield number, merges[-number - 1], merges[-number], agreement


@plainly()
def main(arguments: Sequence[str] | None = None) -> None:
    """Print the cut for each number of clusters."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    options = parser.parse_args(arguments)
    for number, low, high, agreement in cuts(umbel.load(options.run)):
        click.echo(f"{number} clusters: cut from {low:.3f} to {high:.3f}, ARI {agreement:.2f}")


if __name__ == "__main__":
    main()
