"""Figures and tables of a run with time: clusters from step to step."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from umbel.algorithms import Oracle
from umbel.report.figures.charts import Chart, Dot, Line, Scatter
from umbel.report.figures.panels import Panel
from umbel.result.outcomes import Methods, mean_text
from umbel.result.run import Result
from umbel.run.records import ends_of_steps
from umbel.summary import counted, number_text

MOST_PATHS = 60
"""Most clients whose path is drawn; the river shows the numbers of all."""

HEADS = ("step", "accuracy", "ARI", "clusters", "moves", "splits", "births", "merges", "deaths")
CAPTION = (
    "accuracy: on the examples of the next step; moves: clients in another cluster than before"
)


def steps(run: Result) -> list[list[str]]:
    """A row of `HEADS` for each step."""
    changes = {each.step: each for each in run.drift.changes}
    rows = []
    for record in ends_of_steps(run.records):
        one, step = changes.get(record.step or 0), str(record.step)
        accuracy = number_text(record.accuracy, 3)
        counts = [] if one is None else [one.moves, one.splits, one.births, one.merges, one.deaths]
        cells = [str(count) for count in counts] or [""] * 5
        rows.append([step, accuracy, number_text(record.ari, 2), str(record.num_clusters), *cells])
    return rows


def said(run: Result) -> str:
    """A sentence about the drifts that were planted; "" where none are known."""
    found = run.drift
    if found.drifts is None:
        return ""
    late = "" if found.delay is None else f", {found.delay:.1f} steps late in the mean"
    alarms = counted(found.false_alarms or 0, "false alarm")
    return f"{found.found} of {counted(found.drifts, 'planted drift')} found{late}; {alarms}"


def followed(methods: Methods) -> list[tuple[str, list[str]]]:
    """Columns of a comparison over time, each with a cell for every method; [] without time."""
    every = [run for _, runs in methods for run in runs]
    if not all(run.records and run.records[-1].step is not None for run in every):
        return []
    oracles = [run for run in every if isinstance(run.experiment.algorithm, Oracle)]
    best = {run.experiment.seed: run.so_far.accuracy for run in oracles}

    def gap(runs: Sequence[Result]) -> str:
        pairs = [(best.get(run.experiment.seed), run.so_far.accuracy) for run in runs]
        known = [top - mine for top, mine in pairs if top is not None and mine is not None]
        return mean_text(known, 3) if known else "-"

    def total(runs: Sequence[Result], name: str) -> str:
        sums = [sum(getattr(each, name) for each in run.drift.changes) for run in runs]
        return mean_text(sums, 1)

    columns = [("behind the oracle", [gap(runs) for _, runs in methods])]
    for head, name in (
        ("drifts found", "found"),
        ("delay", "delay"),
        ("false alarms", "false_alarms"),
    ):
        cells = [mean_text([getattr(run.drift, name) for run in runs], 1) for _, runs in methods]
        columns.append((head, cells))
    columns += [(name, [total(runs, name) for _, runs in methods]) for name in ("moves", "merges")]
    return [(head, cells) for head, cells in columns if set(cells) != {"-"}]


def panels(run: Result) -> list[Panel]:
    """The river of clusters, and the path of each client through it; none without two steps."""
    tracks = run.drift.clusters
    if len(tracks) < 2:
        return []
    x = tuple(float(record.step or 0) for record in ends_of_steps(run.records))
    numbers = np.unique(tracks[tracks >= 0]).tolist()
    counts = np.array([(tracks == number).sum(axis=1) for number in numbers])  # (K, S)
    tops = counts.cumsum(axis=0)
    lines = []
    for row, number in enumerate(numbers):
        there = counts[row].nonzero()[0]
        high, low = tops[row, there], tops[row, there] - counts[row, there]
        values = ((low + high) / 2, low, high)
        when = tuple(x[place] for place in there)
        lines.append(Line(f"cluster {number}", when, *(tuple(v.tolist()) for v in values)))
    river = Chart(
        "Clusters over time", "step", "clients", tuple(lines), from_zero=True, counts=True
    )
    found = [Panel(river, "A band is a cluster, as wide as it has clients.", wide=True)]
    shown = np.lexsort(tracks[::-1])[:MOST_PATHS]
    names = [client.name for client in run.clients] or [str(n) for n in range(tracks.shape[1])]
    concepts, dots = run.drift.concepts, []
    for height, client in enumerate(shown.tolist()):
        for column, (step, cluster) in enumerate(zip(x, tracks[:, client].tolist(), strict=True)):
            if cluster >= 0:
                concept = "" if concepts is None else str(concepts[column, client])
                about = f"client {names[client]}\nstep {step:g}\ncluster {cluster}"
                about += f"\nconcept {concept}" if concept else ""
                dots.append(Dot(step, height, 1.0, str(cluster), about, kind=concept))
    paths = Scatter(
        "Each client's path",
        "step",
        "clients",
        tuple(dots),
        "cluster",
        kind_title="" if concepts is None else "concept",
        whole_numbers=True,
    )
    note = "A row is a client, the colour its cluster"
    note += "." if concepts is None else ", the shape its planted concept."
    more = tracks.shape[1] - len(shown)
    note += f" {counted(more, 'more client')} not shown." if more > 0 else ""
    return [*found, Panel(paths, note, wide=True)]
