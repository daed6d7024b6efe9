"""Figures and the table of several methods side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Literal

import numpy as np

from umbel.client.metrics import METRICS
from umbel.files.spreadsheet_cells import csv_text
from umbel.notebooks import HtmlTable
from umbel.report.evenness import evenly
from umbel.report.figures.charts import (
    COUNT,
    INDEX,
    POSITIVE,
    SHARE,
    Bounds,
    Chart,
    Dot,
    Line,
    Strip,
    Strips,
    swarm,
)
from umbel.report.figures.panels import Panel
from umbel.report.learning_curves import line_of, split_of
from umbel.report.over_time import followed
from umbel.result.outcomes import Methods, mean, mean_text, spread_text, uneven
from umbel.result.run import Result
from umbel.run.metrics import names_of
from umbel.run.records import RoundValue, judged_metric
from umbel.summary import three_digits

COSTS = ("MB", "gradients", "losses of", "seconds")
"""How the heads of columns begin that say what a method costs."""


@dataclass(frozen=True)
class Sheet:
    """A table as text, in formats for papers and spreadsheets."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]

    def part(self, costs: bool) -> tuple[list[str], list[list[str]]]:
        """The heads and rows of the columns about costs, or of all others, after the first."""
        places = [
            n for n, head in enumerate(self.heads) if n == 0 or head.startswith(COSTS) is costs
        ]
        return [self.heads[n] for n in places], [[row[n] for n in places] for row in self.rows]

    @property
    def markdown(self) -> str:
        """The table in Markdown."""
        rule = ["---", *("---:" for _ in self.heads[1:])]
        heads, *rows = self._piped
        return "".join(f"| {' | '.join(row)} |\n" for row in (heads, rule, *rows))

    @property
    def csv(self) -> str:
        """The table as CSV, with separate columns for means and deviations."""
        parted = [
            place for place in range(1, len(self.heads)) if any("±" in r[place] for r in self.rows)
        ]
        heads: list[str] = []
        for place, head in enumerate(self.heads):
            heads += [head, f"{head} std"] if place in parted else [head]
        rows = []
        for row in self.rows:
            cells: list[str] = []
            for place, cell in enumerate(row):
                mean, _, deviation = cell.partition("±")
                cells += [_known(mean), deviation] if place in parted else [_known(cell)]
            rows.append(cells)
        return csv_text([heads], "\n") + csv_text(rows, "\n", texts=1)

    @property
    def latex(self) -> str:
        """The table in LaTeX, for the package booktabs."""
        return HtmlTable(self.heads, self.rows).latex

    @property
    def _piped(self) -> list[list[str]]:
        whole = (self.heads, *self.rows)
        return [[cell.replace("|", r"\|") for cell in row] for row in whole]


def sheet(methods: Methods) -> Sheet:
    """One row per method, in their order; columns without any value are left out."""
    by_loss = all(run.by_loss for _, runs in methods for run in runs)
    columns: list[tuple[str, Callable[[Sequence[Result]], str]]] = [
        ("accuracy", lambda runs: spread_text([run.so_far.accuracy for run in runs], 3)),
        ("worst client", lambda runs: spread_text([run.so_far.worst for run in runs], 3)),
        ("loss", lambda runs: spread_text([run.so_far.loss for run in runs], 4, True)),
        *((name, partial(_metric, name)) for name in _metrics(methods)),
        ("ARI", lambda runs: spread_text([run.so_far.ari for run in runs], 2)),
        ("clusters", lambda runs: mean_text([run.so_far.num_clusters for run in runs], 1)),
    ]
    costs: list[tuple[str, Callable[[Sequence[Result]], str]]] = [
        ("purity", lambda runs: spread_text([run.so_far.purity for run in runs], 2)),
        ("MB to a client", lambda runs: _traffic([run.megabytes_down for run in runs])),
        ("MB from a client", lambda runs: _traffic([run.megabytes_up for run in runs])),
        ("gradients of a client", lambda runs: _evaluations("gradient", runs)),
        ("losses of a client", lambda runs: _evaluations("loss", runs)),
        ("seconds", lambda runs: mean_text([run.seconds for run in runs], 1)),
    ]
    cells = [(head, [of(runs) for _, runs in methods]) for head, of in columns]
    cells += followed(methods)
    cells += evenly(methods, by_loss)
    cells += [(head, [of(runs) for _, runs in methods]) for head, of in costs]
    known = [("seeds", [str(len(runs)) for _, runs in methods])] if uneven(methods) else []
    known += [(head, column) for head, column in cells if set(column) != {"-"}]
    names = [name for name, _ in methods]
    rows = tuple(zip(names, *(column for _, column in known), strict=True))
    return Sheet(("method", *(head for head, _ in known)), rows)


def _evaluations(of: Literal["gradient", "loss"], runs: Sequence[Result]) -> str:
    return mean_text([run.evaluations_per_client(of) for run in runs], 0)


def _traffic(megabytes: Sequence[float | None]) -> str:
    """The mean over seeds, which for a small model is small beside that for a large one."""
    value = mean(megabytes)
    return three_digits(value) if np.isfinite(value) else "-"


def _megabytes(run: Result) -> float | None:
    """To and from each client; None: not known so far."""
    down, up = run.megabytes_down, run.megabytes_up
    return None if down is None or up is None else down + up


def _metrics(methods: Methods) -> list[str]:
    """The metrics of any of the runs."""
    every = (run for _, runs in methods for run in runs)
    return list(dict.fromkeys(name for run in every for name in names_of(run.experiment)))


def _bounds(name: str) -> Bounds:
    """The bounds of a metric; your own metrics have none."""
    known = METRICS.get(name)
    return (-inf, inf) if known is None else (known.low, known.high)


def _metric(name: str, runs: Sequence[Result]) -> str:
    return spread_text([run.so_far.measures.get(name) for run in runs], 4, True)


def courses(methods: Methods) -> Iterator[Panel]:
    """Measures by round, one line per method."""
    kinds = {run.validated for _, runs in methods for run in runs}
    validated = True in kinds
    split = split_of(kinds)
    on = f"{split} {{}}, mean over clients".format
    worst = [("Worst client", "test accuracy", lambda r: r.worst, SHARE)]
    measures: list[tuple[str, str, RoundValue, Bounds]] = [
        ("Accuracy", on("accuracy"), lambda r: r.judged("accuracy"), SHARE),
        *([] if validated else worst),
        ("Loss", on("loss"), lambda r: r.judged("loss"), POSITIVE),
        *((name, on(name), judged_metric(name), _bounds(name)) for name in _metrics(methods)),
        ("Agreement with the planted groups", "ARI", lambda r: r.ari, INDEX),
        ("Clusters", "clusters", lambda r: r.num_clusters, COUNT),
    ]
    seeds = max(len(runs) for _, runs in methods)
    for title, what, measure, bounds in measures:
        lines = [_course(name, runs, measure, bounds) for name, runs in methods]
        known = tuple(line for line in lines if line.x)
        if known:
            uneven_ends = any(len({len(run.records) for run in runs}) > 1 for _, runs in methods)
            until = ", up to the round in which the first seed of a method ended" * uneven_ends
            note = f"A line is the mean over seeds{until}; its band is the standard deviation."
            note = note if seeds > 1 else "A line per method."
            chart = Chart(title, "round", what, known, counts=title == "Clusters")
            yield Panel(chart, note, wide=title == "Accuracy")


def ends(methods: Methods) -> Iterator[Panel]:
    """The results and the cost of each seed."""
    by_loss = all(run.by_loss for _, runs in methods for run in runs)
    what = "test loss" if by_loss else "test accuracy"
    strips = []
    for name, runs in methods:
        seeds, last = [run.experiment.seed for run in runs], [run.so_far for run in runs]
        mean = list(zip(seeds, [r.loss if by_loss else r.accuracy for r in last], strict=True))
        worst = list(zip(seeds, [r.worst for r in last], strict=True))
        kinds = (("mean over clients", mean), ("worst client", worst))
        dots = [dot for kind, values in kinds for dot in _seeds(name, kind, values)]
        strips.append(Strip(name, tuple(dots)))
    if not any(strip.dots for strip in strips):
        return
    finished = all(run.finished for _, runs in methods for run in runs)
    note = "Two dots per seed, after the last round" + ("." if finished else " that was evaluated.")
    yield Panel(Strips("Every seed", what, tuple(strips), "each seed's"), note)
    yield from _price(methods, by_loss, what)


def _seeds(name: str, kind: str, values: Sequence[tuple[int, float | None]]) -> Iterator[Dot]:
    """One dot per seed, moved aside if it would hide another."""
    known = [(seed, value) for seed, value in values if value is not None]
    aside = swarm([value for _, value in known])
    for (seed, value), shift in zip(known, aside, strict=True):
        yield Dot(value, shift, 1, kind, f"{name}, seed {seed}\n{kind} {value:.4g}")


def _price(methods: Methods, by_loss: bool, what: str) -> Iterator[Panel]:
    """Traffic against quality, one marker per seed; nothing if no traffic is known."""
    lines = []
    for name, runs in methods:
        prices = [
            (_megabytes(run), run.so_far.loss if by_loss else run.so_far.accuracy) for run in runs
        ]
        known_prices = [(x, y) for x, y in prices if x is not None and y is not None]
        lines.append(_dots(name, known_prices))
    known = tuple(line for line in lines if line.x)
    if not known:
        return
    wide = [x for line in known for x in line.x]
    log = min(wide) > 0 and max(wide) > 4 * min(wide)
    yield Panel(
        Chart("What it costs", "MB to and from each client", what, known, log_x=log),
        "One dot per seed; the traffic is that of the whole run.",
    )


def _dots(name: str, places: Sequence[tuple[float, float]]) -> Line:
    return Line(name, tuple(x for x, _ in places), tuple(y for _, y in places), points=True)


def _course(name: str, runs: Sequence[Result], measure: RoundValue, bounds: Bounds) -> Line:
    """The line of the seeds that have the measure at all."""
    seeds = [run.records for run in runs if any(measure(r) is not None for r in run.records)]
    return line_of(name, seeds, measure, bounds)


def _known(cell: str) -> str:
    return "" if cell == "-" else cell
