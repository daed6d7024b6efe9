"""Results of one or several runs by round, as a figure and as a table."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeAlias

import numpy as np

from umbel.checks import UsageError
from umbel.notebooks import HtmlTable
from umbel.report.figures.charts import (
    COUNT,
    INDEX,
    POSITIVE,
    SHARE,
    Bounds,
    Chart,
    Figure,
    Line,
    band,
)
from umbel.report.figures.drawing import Drawing, drawn
from umbel.result.outcomes import mean_text, spread_text
from umbel.run.records import MEGABYTE, Record, RoundValue, last_evaluated

Course: TypeAlias = Sequence[Record]
"""The records of a run."""


class Recorded(Protocol):
    """An object with records, such as a `Result`."""

    @property
    def records(self) -> Course:
        """One record a round."""
        ...


Of: TypeAlias = Course | Recorded
Courses: TypeAlias = Of | Mapping[str, Of | Sequence[Of]]
"""A run; or runs by name, each name with one seed or several."""

MOST_ROUNDS = 12
"""Most rows in the table of a run: rounds at equal distances, and the last round."""


def plot(runs: Courses) -> Drawing:
    """Draw accuracy, clusters, and their agreement with planted groups, by round.

    `plot(records)` draws one run, `plot({"fedavg": records, "flacc": records})` several. Each is
    the records of a run, a `Result`, or a list of these, one for each seed. For a list, the line is
    the mean and the band the population standard deviation, in rounds that all seeds have measured.
    Without accuracy, the loss is drawn. If rounds are judged on validation examples, the values are
    those on validation examples. Returns a figure that a notebook shows and whose `save`
    writes a .png, .svg or .pdf file; `spec` is its Vega-Lite. Raises `UsageError` for anything but
    records, and without the extra `umbel[plot]`.
    """
    by_name = _by_name(runs)
    records = [record for courses in by_name.values() for course in courses for record in course]
    charts: list[Figure] = []
    kinds = {any(r.validation_loss is not None for r in c) for cs in by_name.values() for c in cs}
    split = split_of(kinds)
    if any(record.judged("accuracy") is not None for record in records):
        axis = f"{split} accuracy"
        charts.append(_chart("Accuracy", axis, by_name, lambda r: r.judged("accuracy"), SHARE))
    else:
        axis = f"{split} loss"
        charts.append(_chart("Loss", axis, by_name, lambda r: r.judged("loss"), POSITIVE))
    if any(record.ari is not None for record in records):
        title = "Agreement with the planted groups"
        charts.append(_chart(title, "ARI", by_name, lambda r: r.ari, INDEX))
    clusters = _chart("Clusters", "clusters found", by_name, lambda r: r.num_clusters, COUNT)
    return drawn([*charts, replace(clusters, from_zero=True, counts=True)], columns=3)


def split_of(validated: Collection[bool]) -> str:
    """The split that curves are about: validation, if runs are evaluated on it, or test."""
    if len(set(validated)) > 1:
        return "test or validation"
    return "validation" if any(validated) else "test"


def table(runs: Courses) -> HtmlTable:
    """Tabulate one run by round, or several runs, one row each, after the last evaluated round.

    It takes what `plot` takes. Several seeds are given by mean and population standard
    deviation.
    """
    by_name = _by_name(runs)
    records = [record for courses in by_name.values() for course in courses for record in course]
    by_loss = all(record.judged("accuracy") is None for record in records)
    quality = ("loss",) if by_loss else ("accuracy", "worst client")
    heads = (*quality, "ARI", "clusters", "MB down", "MB up")
    if isinstance(runs, Mapping):
        rows = [
            (name, *_cells(courses, list(map(last_evaluated, courses)), by_loss))
            for name, courses in by_name.items()
        ]
        return HtmlTable(
            ("run", *heads), tuple(rows), note="MB: to and from all clients, in all rounds"
        )
    (course,) = by_name[""]
    step = max(1, -(-len(course) // MOST_ROUNDS))
    ends = sorted({*range(len(course), 0, -step)})
    cells = [_cells([course[:n]], [course[n - 1]], by_loss) for n in ends]
    if any(record.validation_loss is not None for record in course):
        measure, digits = ("loss", 4) if by_loss else ("accuracy", 3)
        heads = (f"validation {measure}", *heads)
        judged = [spread_text([course[n - 1].judged(measure)], digits, by_loss) for n in ends]
        cells = [[first, *row] for first, row in zip(judged, cells, strict=True)]
    shown = [(str(course[n - 1].round), *row) for n, row in zip(ends, cells, strict=True)]
    note = "MB: to and from all clients, up to this round; rounds are counted from 0"
    return HtmlTable(("round", *heads), tuple(shown), note=note)


def _cells(courses: Sequence[Course], last: Sequence[Record], by_loss: bool) -> list[str]:
    """A row about several runs: what they measured `last`, and the traffic of all their rounds."""
    down = [sum(record.bytes_down for record in course) / MEGABYTE for course in courses]
    up = [sum(record.bytes_up for record in course) / MEGABYTE for course in courses]
    if by_loss:
        quality = [spread_text([record.loss for record in last], 4, True)]
    else:
        quality = [spread_text([record.accuracy for record in last], 3)]
        quality.append(mean_text([record.worst for record in last], 2))
    counts: list[float | None] = [record.num_clusters for record in last]
    digits = 0 if len(courses) == 1 else 1
    agreement = spread_text([record.ari for record in last], 2)
    traffic = [f"{np.mean(megabytes):.3g}" for megabytes in (down, up)]
    return [*quality, agreement, mean_text(counts, digits), *traffic]


def _chart(
    title: str,
    axis: str,
    by_name: Mapping[str, Sequence[Course]],
    measure: RoundValue,
    bounds: Bounds,
) -> Chart:
    lines = [line_of(name, courses, measure, bounds) for name, courses in by_name.items()]
    return Chart(title, "round", axis, tuple(lines))


def line_of(name: str, courses: Sequence[Course], measure: RoundValue, bounds: Bounds) -> Line:
    """The mean over the runs, in rounds in which all of them have a value, with their deviation.

    In other rounds the mean would be over other runs than before.
    """
    taken = [
        {r.round: value for r in course if (value := measure(r)) is not None} for course in courses
    ]
    rounds = sorted(set.intersection(*map(set, taken))) if taken else []
    if not rounds:
        return Line(name, (), ())
    values = np.array([[values[number] for number in rounds] for values in taken])
    x = tuple(float(number + 1) for number in rounds)
    mean, wide = tuple(values.mean(0).tolist()), tuple(values.std(0).tolist())
    if len(courses) == 1:
        return Line(name, x, mean)
    return Line(name, x, mean, *band(mean, wide, bounds))


def _by_name(runs: Courses) -> dict[str, list[Course]]:
    """The runs of each name; a single run has no name."""
    if isinstance(runs, Mapping):
        named = {str(name): _courses(course, str(name)) for name, course in runs.items()}
    else:
        named = {"": [_course(runs, "records")]}
    if not named:
        raise UsageError("runs: {} is not a mapping of names to records of runs")
    return named


def _courses(course: Of | Sequence[Of], name: str) -> list[Course]:
    seeds = _listed(course, name)
    alone = bool(seeds) and isinstance(seeds[0], Record)
    return [_course(each, name) for each in ([seeds] if alone or not seeds else seeds)]


def _course(course: object, name: str) -> Course:
    records = _listed(course, name)
    strange = [type(entry).__name__ for entry in records if not isinstance(entry, Record)]
    if not records or strange:
        what = f"{strange[0]!r}" if strange else "an empty list"
        raise UsageError(f"{name}: {what} is not a list of at least one record of a run")
    return records


def _listed(course: object, name: str) -> list[Any]:
    course = getattr(course, "records", course)  # of a `Result`
    if not isinstance(course, Iterable) or isinstance(course, str):
        raise UsageError(f"{name}: {type(course).__name__!r} is not a list of the records of a run")
    return list(course)
