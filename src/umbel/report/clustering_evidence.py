"""Figures of the data that a method's clusters are based on."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
import torch
from numpy.typing import NDArray

from umbel.algorithms.restarts import innermost
from umbel.experiment.layers import Stranger
from umbel.folder.clients_file import Client
from umbel.folder.evidence_folder import Snapshot
from umbel.report.by_round import course, marks
from umbel.report.clients import said
from umbel.report.figures.charts import Chart, Dot, Heatmap, Line, Mark, Scatter
from umbel.report.figures.panels import Panel
from umbel.report.figures.trees import brackets, ordered_tree
from umbel.result.run import Result
from umbel.run.metrics import names_of
from umbel.server.cluster_count import ClusterCount

MEASURES: Mapping[str, tuple[str, str]] = {
    "best_cross": ("Smallest cross-similarity of the best pair", "alpha-min-cross"),
    "merges": ("Merges", "merges a round"),
}
"""Titles and units of measures of methods; all others are drawn under their names."""

LIMITS: Mapping[str, tuple[str, ...]] = {"best_cross": ("alpha_0",)}
"""The settings that a measure is compared with."""

TABLES: Mapping[str, tuple[str, str, str]] = {
    "losses": ("Loss of every model on each client", "loss", "A client takes the lowest."),
    "scores": ("Score of every model on each client", "score", "A client takes the highest."),
    "weights": ("Weight of every model for each client", "weight", "A client mixes by these."),
}

MATRICES: Mapping[str, tuple[str, str]] = {
    "similarity": ("Similarity of clients", "similarity"),
    "distance": ("Distance of clients", "distance"),
}

UNDRAWN = ("queries", "last_change", "separated")
"""Measures without a figure: they are shown elsewhere, or carry little information."""

AXES = ("first direction", "second direction")

VIEWS = 4
"""Largest number of rounds after which features are shown."""


def grounds(run: Result) -> Iterator[Panel]:
    """All figures of the reasons for the clusters."""
    snapshots = run.folder.evidence.read()
    if snapshots:
        last = snapshots[-1]
        for kind in last.tensors:
            if kind in MATRICES or kind in TABLES:
                yield _heatmap(run, last, kind)
        if "singular_values" in last.tensors:
            yield _spectrum(last)
        if "features" in last.tensors:
            yield from _features(run, snapshots)
    yield from _measures(run)


def _heatmap(run: Result, snapshot: Snapshot, kind: str) -> Panel:
    """Clients ordered by cluster: against models, or against clients with a tree of them."""
    clients = _whose(run, snapshot)
    values = snapshot.tensors[kind].double().numpy()
    if kind in MATRICES:
        title, what = MATRICES[kind]
        clusters = np.array([client.cluster for client in clients])
        tree = ordered_tree(1 - values if kind == "similarity" else values, clusters)
        order, branches = [int(place) for place in tree.order], brackets(tree)
        columns = tuple(clients[place].name for place in order)
        values, rule, gaps = values[:, order], "", "not known"
        told = " The tree joins clients, and then clusters, by their mean distance."
    else:
        title, what, rule = TABLES[kind]
        order = sorted(range(len(clients)), key=lambda n: (clients[n].cluster, clients[n].group))
        branches, columns = (), tuple(f"model {number}" for number in range(values.shape[1]))
        rule, gaps, told = f"{rule} ", "never asked", ""
    ordered = [clients[place] for place in order]
    figure = Heatmap(
        f"{title} after round {snapshot.round + 1}",
        what,
        values[order],
        tuple(client.name for client in ordered),
        columns,
        tree=branches,
        details=tuple(said(client) for client in ordered),
        clusters=tuple(str(client.cluster) for client in ordered),
    )
    note = f"{rule}Clients in the order of the clusters they are in; gaps: {gaps}.{told}"
    return Panel(figure, note + _share(run, clients), wide=kind in MATRICES)


def cluster_count(count: ClusterCount) -> tuple[Chart, Chart]:
    """The singular values with their largest gap, and k-means with the estimates."""
    values, inertia = count.singular_values, count.inertia
    numbers = tuple(float(n) for n in range(1, 1 + max(len(values), len(inertia))))
    gap = Mark(count.rank + 0.5, f"largest gap: s = {count.rank}")
    estimates = (
        Mark(count.elbow, f"elbow: {count.elbow}"),
        Mark(count.gap_statistic, f"gap statistic: {count.gap_statistic}"),
    )
    sizes = Line("singular values", numbers[: len(values)], tuple(map(float, values)))
    sums = Line("k-means", numbers[: len(inertia)], tuple(map(float, inertia)))
    return (
        Chart("Vectors of the clients", "singular value", "size", (sizes,), (gap,)),
        Chart("k-means", "clusters", "within-cluster sum of squares", (sums,), estimates),
    )


def _spectrum(snapshot: Snapshot) -> Panel:
    """Singular values and their largest gap, as Kim et al. 2024, Fig. 19."""
    values = snapshot.tensors["singular_values"].tolist()
    numbers = tuple(float(number + 1) for number in range(len(values)))
    gaps = [a - b for a, b in pairwise(values)]
    marks: tuple[Mark, ...] = ()
    if gaps:
        after = int(np.argmax(gaps)) + 1
        marks = (Mark(after + 0.5, f"largest gap: after {after}"),)
    line = Line("singular values", numbers, tuple(values), points=True)
    title = f"Singular values after round {snapshot.round + 1}"
    return Panel(
        Chart(title, "number", "singular value", (line,), marks),
        "Of the clients' vectors; the largest gap is a hint of how many clusters there are.",
    )


def _features(run: Result, all_of_them: Sequence[Snapshot]) -> Iterator[Panel]:
    """Clients in two dimensions, over time, as in Kim et al. 2024, Fig. 12."""
    snapshots: list[Snapshot] = []
    for each in all_of_them:
        # The features do not change after a clustering has ended.
        features = each.tensors.get("features", torch.empty(0))
        new = not snapshots or not _same(each, snapshots[-1])
        drawable = len(features) > 1 and bool(features.isfinite().all())
        snapshots += [each] if new and drawable else []
    picked = np.unique(np.linspace(0, len(snapshots) - 1, VIEWS).round().astype(int))
    before: dict[int, NDArray[np.float64]] = {}
    for place in picked if snapshots else ():
        snapshot = snapshots[place]
        numbers = snapshot.tensors["clients"].tolist()
        flat = _turned(_flat(snapshot.tensors["features"].double().numpy()), numbers, before)
        before = dict(zip(numbers, flat, strict=True))
        clients = _whose(run, snapshot)
        dots = tuple(
            Dot(float(x), float(y), 1, str(c.cluster), said(c), kind=c.group)
            for (x, y), c in zip(flat, clients, strict=True)
        )
        title = f"Clients' features after round {snapshot.round + 1}"
        yield Panel(
            Scatter(title, *AXES, dots, "cluster", kind_title="planted group"),
            "One dot per client, in the two directions in which clients differ most."
            + _share(run, clients),
        )


def _same(one: Snapshot, other: Snapshot) -> bool:
    """Whether the features are the same."""
    features = [each.tensors.get("features", torch.empty(0)) for each in (one, other)]
    return torch.equal(*features)


def _flat(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Rows (N, D) projected on their two principal directions: (N, 2)."""
    centred = rows - rows.mean(0)
    _, _, directions = np.linalg.svd(centred, full_matrices=False)
    places = np.zeros((len(rows), 2))
    places[:, : len(directions[:2])] = centred @ directions[:2].T
    return places


def _turned(
    rows: NDArray[np.float64], clients: Sequence[int], before: Mapping[int, NDArray[np.float64]]
) -> NDArray[np.float64]:
    """The same rows (N, 2), rotated or mirrored so that clients stay near their last positions."""
    both = [place for place, client in enumerate(clients) if client in before]
    if len(both) < 2:
        return rows
    old = np.stack([before[clients[place]] for place in both])
    left, _, right = np.linalg.svd(rows[both].T @ old)
    turned: NDArray[np.float64] = rows @ left @ right
    return turned


def _measures(run: Result) -> Iterator[Panel]:
    """The measures that the method adds to its records, if they vary."""
    names = dict.fromkeys(name for record in run.records for name in record.measures)
    of_quality = {f"{kind}{n}" for n in names_of(run.experiment) for kind in ("", "validation_")}
    for name in names:
        if name in of_quality:
            continue
        line = course(run, name, lambda r, name=name: r.measures.get(name))  # type: ignore[misc]
        if name in UNDRAWN or len(set(line.y)) < 2:
            continue
        title, what = MEASURES.get(name, (name.replace("_", " ").capitalize(), name))
        limits = [
            Line(key, (line.x[0], line.x[-1]), (at, at)) for key, at in _limits(run, name).items()
        ]
        zero = not limits and min(line.y) >= 0
        lines = (line, *limits)
        yield Panel(Chart(title, "round", what, lines, marks(run), from_zero=zero))


def _limits(run: Result, measure: str) -> dict[str, float]:
    """The settings of the run's method that a measure is compared with; others have none."""
    method = innermost(run.experiment.algorithm)
    # A method of one's own is not imported to be looked at; its table tells all its settings.
    told = method.table if isinstance(method, Stranger) else vars(method)
    found = {key: told.get(key) for key in LIMITS.get(measure, ())}
    return {key: at for key, at in found.items() if isinstance(at, int | float)}


def _whose(run: Result, snapshot: Snapshot) -> list[Client]:
    """The clients of a snapshot, by default the numbers of its rows."""
    numbers, known = snapshot.tensors["clients"].tolist(), {c.number: c for c in run.clients}
    return [known.get(n, Client(str(n), n, 0)) for n in numbers]


def _share(run: Result, clients: Sequence[Client]) -> str:
    if len(clients) >= len(run.clients):
        return ""
    return f" Of {len(run.clients)} clients {len(clients)} are shown."
