"""Checks that a method's settings fit the number of clients, if it is known."""

from __future__ import annotations

from collections.abc import Sequence

from umbel.algorithms.base import Known, Setup
from umbel.checks import check


def check_num_clusters(num_clusters: int | None, setup: Setup | Known) -> None:
    """Raise `UsageError` if both numbers are known, and there are fewer clients than clusters."""
    if num_clusters is not None and setup.num_clients is not None:
        expected = f"at most the number of clients, {setup.num_clients}"
        check(num_clusters <= setup.num_clients, "algorithm.num_clusters", num_clusters, expected)


def check_clusters(clusters: Sequence[int], setup: Setup | Known) -> None:
    """Raise `UsageError` unless `clusters` is empty, or has one for each of the known clients."""
    if clusters and setup.num_clients is not None:
        fine = len(clusters) == setup.num_clients
        expected = f"the cluster of each of the {setup.num_clients} clients"
        check(fine, "algorithm.clusters", f"{len(clusters)} numbers", expected)
