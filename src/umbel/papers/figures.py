"""A reproduction's results as charts, with the paper's numbers where it prints any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import nan

from umbel.papers.base import Course, Reproduction, Spectrum, Sweep
from umbel.papers.comparing import Compared, compared
from umbel.papers.measures import title
from umbel.papers.results import Found, Results
from umbel.report.charts import Chart, Line

Values = tuple[float, ...]


def charts(wanted: Reproduction, found: Results) -> list[Chart]:
    """Its figures, in their order."""
    drawn: list[Chart] = []
    for figure in wanted.figures:
        if isinstance(figure, Sweep):
            drawn.append(_sweep(wanted, found, figure))
        elif isinstance(figure, Course):
            drawn += _courses(found, figure)
        else:
            drawn += _spectra(found, figure)
    return drawn


def _sweep(wanted: Reproduction, found: Results, figure: Sweep) -> Chart:
    cells = [
        cell
        for cell in compared(wanted, found, figure.measure)
        if not figure.columns or cell.column.startswith(figure.columns)
    ]
    columns = list(dict.fromkeys(cell.column for cell in cells))
    numbers = figure.numbers
    places = {
        column: float(n) if numbers is None else numbers(column) for n, column in enumerate(columns)
    }
    lines = []
    for row, mine in _by_row(cells):
        x = tuple(places[cell.column] for cell in mine)
        y, std = (tuple(_known(v) for v in each) for each in _ours(mine))
        lines.append(Line(row, x, y, *_band(y, std), points=numbers is None))
        known = [cell for cell in mine if cell.published is not None and not cell.published.about]
        if known:
            lines.append(_published(row, known, places, points=numbers is None))
    return Chart(
        title(figure.measure),
        figure.x_title,
        title(figure.measure),
        tuple(lines),
        log_x=figure.log_x,
        categories=tuple(columns) if numbers is None else (),
    )


def _published(row: str, known: Sequence[Compared], places: dict[str, float], points: bool) -> Line:
    x = tuple(places[cell.column] for cell in known)
    means = tuple(cell.published.mean for cell in known if cell.published is not None)
    stds = tuple(cell.published.std for cell in known if cell.published is not None)
    low, high = _band(means, stds) if points else ((), ())
    return Line(row, x, means, low, high, published=True, points=points)


def _courses(found: Results, figure: Course) -> Iterator[Chart]:
    """A chart a column, a line a row."""
    for column in dict.fromkeys(cell.column for cell in found.cells):
        here = [cell for cell in found.cells if cell.column == column]
        lines = tuple(_course(cell, figure.measure) for cell in here)
        yield Chart(column, "round", title(figure.measure), lines)


def _course(cell: Found, measure: str) -> Line:
    course = cell.courses[measure]
    mean, std = (tuple(map(_known, values)) for values in (course.mean, course.std))
    return Line(cell.row, tuple(map(float, course.rounds)), mean, *_band(mean, std))


def _band(mean: Values, std: Values) -> tuple[Values, Values]:
    """From one standard deviation below to one above."""
    pairs = list(zip(mean, std, strict=True))
    return tuple(m - s for m, s in pairs), tuple(m + s for m, s in pairs)


def _spectra(found: Results, figure: Spectrum) -> Iterator[Chart]:  # noqa: ARG001
    """A chart a column: the mean over seeds of each singular value, the largest being 1."""
    for column in dict.fromkeys(cell.column for cell in found.cells):
        lines = []
        for cell in found.cells:
            if cell.column == column:
                means = [sum(v) / len(v) for v in zip(*cell.spectra, strict=False)]
                x = tuple(float(n) for n in range(1, len(means) + 1))
                lines.append(Line(cell.row, x, tuple(value / means[0] for value in means)))
        yield Chart(column, "singular value", "size, of the largest", tuple(lines))


def _by_row(cells: Sequence[Compared]) -> Iterator[tuple[str, list[Compared]]]:
    for row in dict.fromkeys(cell.row for cell in cells):
        yield row, [cell for cell in cells if cell.row == row]


def _ours(cells: Sequence[Compared]) -> tuple[list[float | None], list[float | None]]:
    return [cell.mean for cell in cells], [cell.std or 0.0 for cell in cells]


def _known(value: float | None) -> float:
    return nan if value is None else value
