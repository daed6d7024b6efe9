"""A figure of the clusters and their clients."""

from __future__ import annotations

from collections.abc import Sequence

from umbel.algorithms.base import State
from umbel.checks import UsageError
from umbel.data.federation import Federation
from umbel.report.figures.charts import Dot, Label, Scatter
from umbel.report.figures.drawing import Drawing, drawn
from umbel.result.run import Result
from umbel.server.numbering import in_order_of_appearance

MOST_NAMED = 40
"""Largest number of clients that are named; more names would hide one another."""


def plot_clusters(what: State | Result, federation: Federation | None = None) -> Drawing:
    """Draw each client as a dot above the number of its cluster, in the shape of its group.

    `plot_clusters(state, federation)` draws a state that `Run.rounds` gave, with the run's
    federation, and `plot_clusters(umbel.load(folder))` a finished run. Returns a figure
    that a notebook shows and whose `save` writes a file, as that of `umbel.plot`. Raises
    `UsageError` where the two are of different clients, and without the extra `umbel[plot]`.
    """
    if isinstance(what, Result):
        return _figure([(c.name, c.cluster, c.group, c.examples or 0) for c in what.clients])
    state = what
    if federation is None:
        raise UsageError("federation: missing; write plot_clusters(state, federation)")
    here, size = len(state.labels), federation.num_clients
    if here != size:
        raise UsageError(f"state: has {here} clients, but the federation has {size}")
    clusters = in_order_of_appearance(state.labels.numpy()).tolist()
    groups = [""] * size if federation.groups is None else map(str, federation.groups.tolist())
    sizes = federation.train.sizes.tolist()
    return _figure(list(zip(federation.names, clusters, groups, sizes, strict=True)))


def _figure(clients: Sequence[tuple[str, int, str, int]]) -> Drawing:
    """Draw clients, each given as its name, cluster, planted group and number of examples."""
    dots: list[Dot] = []
    labels: list[Label] = []
    heights: dict[int, int] = {}
    for name, cluster, group, size in sorted(clients, key=lambda client: client[1:3]):
        heights[cluster] = height = heights.get(cluster, 0) + 1
        dots.append(Dot(cluster, height, size, str(cluster), name, kind=group))
        labels.append(Label(cluster, height - 0.18, name))
    figure = Scatter(
        "Who is in which cluster",
        "cluster",
        "clients",
        tuple(dots),
        labels=tuple(labels) if len(labels) <= MOST_NAMED else (),
        kind_title="planted group",
        whole_numbers=True,
    )
    return drawn([figure])
