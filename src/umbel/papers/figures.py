"""A reproduction's results as charts, with the paper's numbers if it prints any."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from math import nan

from umbel.papers.base import ColumnsPlot, Reproduction, RoundsPlot
from umbel.papers.comparing import compared
from umbel.papers.measures import title
from umbel.papers.saved_results import CellResult, SavedResults
from umbel.report.figures.charts import Chart, Line

Values = tuple[float, ...]


def charts(wanted: Reproduction, results: SavedResults) -> list[Chart]:
    """Its figures, in their order."""
    drawn: list[Chart] = []
    for plot in wanted.plots:
        if isinstance(plot, ColumnsPlot):
            drawn.append(_against_columns(wanted, results, plot))
        elif isinstance(plot, RoundsPlot):
            drawn += _against_rounds(results, plot)
        else:
            drawn += _spectra(results)
    return drawn


def _against_columns(wanted: Reproduction, results: SavedResults, plot: ColumnsPlot) -> Chart:
    cells = [
        cell
        for cell in compared(wanted, results, plot.measure)
        if not plot.columns or cell.column.startswith(plot.columns)
    ]
    columns = tuple(dict.fromkeys(cell.column for cell in cells))
    named = plot.numbers is None
    places = dict(zip(columns, map(plot.numbers or columns.index, columns), strict=True))
    lines = []
    for row in dict.fromkeys(cell.row for cell in cells):
        mine = [cell for cell in cells if cell.row == row]
        x, y = _values((places[cell.column], cell.mean) for cell in mine)
        lines.append(Line(row, x, y, *_band(y, [cell.std or 0.0 for cell in mine]), points=named))
        printed = [
            (places[cell.column], cell.published)
            for cell in mine
            if cell.published is not None and not cell.published.about
        ]
        if printed:
            x, y = _values((place, number.mean) for place, number in printed)
            band = _band(y, [number.std or 0.0 for _, number in printed]) if named else ((), ())
            lines.append(Line(row, x, y, *band, published=True, points=named))
    name = title(plot.measure)
    categories = columns if named else ()
    return Chart(name, plot.x_title, name, tuple(lines), log_x=plot.log_x, categories=categories)


def _against_rounds(results: SavedResults, plot: RoundsPlot) -> Iterator[Chart]:
    """One chart per column, one line per row; missing results stay empty, to keep colours."""
    rows = dict.fromkeys(cell.row for cell in results.cells)
    for column in dict.fromkeys(cell.column for cell in results.cells):
        here = {cell.row: cell for cell in results.cells if cell.column == column}
        lines = tuple(
            _curve(here[row], plot.measure) if row in here else Line(row, (), ()) for row in rows
        )
        yield Chart(column, "round", title(plot.measure), lines)


def _curve(cell: CellResult, measure: str) -> Line:
    curve = cell.courses[measure]
    x, mean = _values(zip(curve.rounds, curve.mean, strict=True))
    return Line(cell.row, x, mean, *_band(mean, [_known(std) for std in curve.std]))


def _band(mean: Values, std: Sequence[float]) -> tuple[Values, Values]:
    """From one standard deviation below to one above."""
    pairs = list(zip(mean, std, strict=True))
    return tuple(m - s for m, s in pairs), tuple(m + s for m, s in pairs)


def _spectra(results: SavedResults) -> Iterator[Chart]:
    """One chart per column: the mean of each singular value over seeds, relative to the largest."""
    for column in dict.fromkeys(cell.column for cell in results.cells):
        lines = []
        for cell in results.cells:
            if cell.column == column:
                means = [sum(v) / len(v) for v in zip(*cell.spectra, strict=False)]
                x = tuple(float(n) for n in range(1, len(means) + 1))
                lines.append(Line(cell.row, x, tuple(value / means[0] for value in means)))
        yield Chart(column, "singular value", "size, of the largest", tuple(lines))


def _values(points: Iterable[tuple[float, float | None]]) -> tuple[Values, Values]:
    """The titles of the axes."""
    pairs = list(points)
    return tuple(float(x) for x, _ in pairs), tuple(_known(y) for _, y in pairs)


def _known(value: float | None) -> float:
    return nan if value is None else value
