"""A figure of a report with its description."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count

from umbel.report.figures.charts import Chart, Figure, Heatmap, Line, Scatter, Strip, Strips
from umbel.summary import counted

LONGEST_NAME_BYTES = 100
"""Bytes of a file's name, without its number and ending: file systems take 255 or fewer."""


@dataclass(frozen=True)
class Panel:
    """A figure, and a sentence under it."""

    figure: Figure
    note: str = ""
    wide: bool = False  # takes the whole width of the page

    @property
    def file_name(self) -> str:
        """The name of its files, of letters and digits of any script; "figure" if none is left."""
        words = re.sub(r"[\W_]+", "-", self.figure.title.lower()).encode()[:LONGEST_NAME_BYTES]
        return words.decode(errors="ignore").strip("-") or "figure"


def numbered(names: Iterable[str]) -> list[str]:
    """These names, each of which is there once: "a", "a-2" and so on.

    >>> numbered(["a", "b", "a", "a-2"])
    ['a', 'b', 'a-2', 'a-2-2']
    """
    free: list[str] = []
    for name in names:
        others = (f"{name}-{number}" for number in count(2))
        free.append(name if name not in free else next(n for n in others if n not in free))
    return free


def described(figure: Figure) -> str:
    """A description of the figure in words, for readers who can't see it."""
    if isinstance(figure, Chart):
        marks = [f"{mark.text} at {mark.x:g}" for mark in figure.marks]
        said = [_line(figure, line) for line in figure.lines if not line.muted]
        said += [] if figure.limit is None else [f"limit at {figure.limit:g}"]
        what = figure.y_title or figure.title.lower()
        what += f" against {figure.x_title}" if figure.x_title else ""
        return f"Chart, {what}. {'; '.join([*said, *marks])}."
    if isinstance(figure, Heatmap):
        shape = figure.values.shape
        of = f"{counted(shape[0], 'row')}, {counted(shape[1], 'column')}"
        return f"Heat map of {figure.value_title}: {of}."
    if isinstance(figure, Strips):
        rows = [_strip(strip) for strip in figure.strips]
        more = f"; and {counted(len(rows) - 12, 'more row')}" if len(rows) > 12 else ""
        return f"Rows, {figure.x_title}. {'; '.join(rows[:12])}{more}."
    assert isinstance(figure, Scatter)
    kinds = f" in {counted(len(figure.groups), 'kind')}" if figure.group_title else ""
    kinds += f" ({figure.group_title})" if figure.group_title else ""
    axes = "" if figure.is_map else f": {figure.y_title} against {figure.x_title}"
    labels = f" {'; '.join(label.text for label in figure.labels[:12])}." if figure.labels else ""
    return f"{counted(len(figure.dots), 'dot')}{kinds}{axes}.{labels}"


def _strip(strip: Strip) -> str:
    middle, values = strip.middle, [dot.x for dot in strip.dots]
    name = strip.name
    if middle is not None:
        return f"{name} {middle.at:.3g}, from {middle.low:.3g} to {middle.high:.3g}"
    if not values:
        return f"{name}: nothing known"
    if len(values) == 1:
        return f"{name} {values[0]:.3g}"
    return f"{name}: {len(values)} dots from {min(values):.3g} to {max(values):.3g}"


def _line(figure: Chart, line: Line) -> str:
    known = [(x, y) for x, y in zip(line.x, line.y, strict=True) if y is not None and y == y]
    if not known:
        return f"{line.name}: nothing known"
    if figure.categories:
        values = [f"{figure.categories[round(x)]} {y:.3g}" for x, y in known]
        return f"{line.name}: {', '.join(values)}"
    (first, begin), (last, end) = known[0], known[-1]
    if first == last:
        return f"{line.name}: {end:.3g} at {last:g}"
    return f"{line.name}: {begin:.3g} at {first:g}, {end:.3g} at {last:g}"
