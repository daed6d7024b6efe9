"""The numbers that papers print, read from tables in Markdown."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

ANY = ""
"""The column of numbers that hold for every column."""


@dataclass(frozen=True)
class Published:
    """A number of a paper: its mean, with the standard deviation if one is printed."""

    mean: float
    std: float = 0.0
    about: bool = False  # read off a figure, or from words such as "close to"

    def __str__(self) -> str:
        spread = f" ± {self.std:g}" if self.std else ""
        return f"{'about ' if self.about else ''}{self.mean:g}{spread}"

    @classmethod
    def of(cls, text: str) -> Published:
        """The number in a text such as "82.8", "82.8 ± 1.2" or "about 90"."""
        mean, _, std = text.removeprefix("about ").partition("±")
        return cls(float(mean), float(std or 0), text.startswith("about "))


def printed(text: str) -> Mapping[tuple[str, str, str], Published]:
    """The numbers of a table by row, column and measure; a dash is no number.

    The corner names the measure. Where it is empty, the columns are measures, and the numbers hold
    for every column of the reproduction.
    """
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    (corner, *heads), _, *rows = lines
    return {
        (row, head, corner) if corner else (row, ANY, head): Published.of(cell)
        for row, *cells in rows
        for head, cell in zip(heads, cells, strict=True)
        if cell != "-"
    }
