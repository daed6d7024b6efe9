"""Room for text in figures in files: sizes of figures, and names on axes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil, floor, log10
from textwrap import fill

from umbel.report.figures.charts import Chart, Figure, Heatmap, Line, Strips

WIDTH, HEIGHT = 4.6, 3.4
"""Inches of a figure with little beside it."""

LETTER, ROW = 0.058, 0.15
"""Inches of a letter, and of a line, in the small font of legends and names of rows."""

OF_A_COLUMN, OF_A_ROW = 28, 40
"""Most letters of a name below a column, or next to a row."""

NAMED = 30
"""Most rows or columns of a heat map that are named."""

IN_A_COLUMN = 40
"""Most names in a column of a legend."""

MOST_ROWS = 100
"""Most rows of a figure with room for names in that font."""

FEW_LINES = 5
"""Lines whose names hide little of a chart that they stand in."""

ACROSS, UP = 45, 34
"""Letters of a line of text that fit above or below a figure, and beside it."""

CROWDED = 500
"""Number of dots from which on they are drawn smaller, with thinner edges."""

FEW_TICKS = 6
"""Stretches of an axis between numbers of many digits."""

FEW_PLACES = 12
"""Number of values of x up to which a logarithmic axis may name them, and no others."""

APART = 1 / 14
"""Part of a logarithmic axis that lies between two values that are both named."""


def size(figure: Figure) -> tuple[float, float]:
    """Width and height in inches."""
    names, width, height = beside(figure), WIDTH, HEIGHT
    if names:
        columns = legend_columns(names)
        width += columns * max(1.6, 0.4 + LETTER * max(map(len, names)))
        height = max(height, 0.6 + ROW * ceil(len(names) / columns))
    if isinstance(figure, Heatmap) and len(figure.columns) <= NAMED:
        below = (len(short(name, OF_A_COLUMN)) for name in figure.columns)
        height += LETTER * max(below, default=0)
    if isinstance(figure, Strips):
        longest = max((len(short(s.name, OF_A_ROW) + s.after) for s in figure.strips), default=0)
        width += LETTER * max(0, longest - 20)
        height = max(height, 0.9 + ROW * min(MOST_ROWS, len(figure.strips)))
    return width, height


def beside(figure: Figure) -> list[str]:
    """The lines of a legend that stands beside a figure, in which it would hide something."""
    if isinstance(figure, Chart):
        return [named(line) for line in figure.lines] if len(figure.lines) > FEW_LINES else []
    if isinstance(figure, Heatmap) or not figure.group_title or len(figure.groups) < 2:
        return []
    return [figure.group_title, *figure.groups]


def legend_columns(names: Sequence[str]) -> int:
    """Columns of a legend with these lines."""
    return ceil(len(names) / IN_A_COLUMN)


def named(line: Line) -> str:
    """The name in a legend."""
    return f"{line.name}, published" if line.published else line.name


def short(name: str, most: int) -> str:
    """A name, without its middle if the whole name would leave too little room for the plot."""
    start, end = most * 3 // 5, most - 1 - most * 3 // 5
    return name if len(name) <= most else f"{name[:start]}…{name[-end:]}"


def wrapped(text: str, width: int = ACROSS) -> str:
    """A title in lines that fit."""
    return fill(text, width)


def log_ticks(values: Sequence[float]) -> list[float]:
    """The named values on a logarithmic axis.

    These are the values themselves, if they are few, round and far apart; else powers of ten, or if
    there are fewer than three, 1, 2 and 5 times each, or all multiples of each.
    """
    places = sorted(set(values))
    reach = log10(places[-1] / places[0])
    apart = all(log10(high / low) >= APART * reach for low, high in pairwise(places))
    if len(places) <= FEW_PLACES and apart and all(float(f"{x:.2g}") == x for x in places):
        return places
    ticks: list[float] = []
    for digits in ((1,), (1, 2, 5), tuple(range(1, 10))):
        powers = range(floor(log10(places[0])), ceil(log10(places[-1])) + 1)
        every = [float(f"{digit}e{power}") for power in powers for digit in digits]
        ticks = [tick for tick in every if places[0] <= tick <= places[-1]]
        if len(ticks) > 2:
            break
    return ticks or places[:1]


def thinned(dots: int) -> float:
    """The factor by which each of this many dots is smaller, and its edge thinner."""
    return min(1.0, CROWDED / max(1, dots))
