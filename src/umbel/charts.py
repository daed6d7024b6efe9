"""Figures as values: what is to be seen, apart from any library that draws it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

COLOURS = (
    "#0072B2",  # blue
    "#E69F00",  # orange
    "#009E73",  # green
    "#CC79A7",  # purple
    "#D55E00",  # vermilion
    "#56B4E9",  # sky
    "#F0E442",  # yellow
    "#000000",  # black
)
"""Told apart by colour-blind readers too (Okabe & Ito 2008)."""

T = TypeVar("T")


@dataclass(frozen=True)
class Line:
    """A curve or a row of points. NaN in `y` leaves a gap."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()  # a band, as long as x, or nothing
    high: tuple[float, ...] = ()
    published: bool = False  # from a paper: drawn apart
    points: bool = False  # markers, with error bars from the band, instead of a line

    def __post_init__(self) -> None:
        assert len(self.x) == len(self.y), f"{self.name}: {len(self.x)} x, {len(self.y)} y"
        for band in (self.low, self.high):
            assert len(band) == (len(self.x) if self.low else 0), f"{self.name}: not a whole band"


@dataclass(frozen=True)
class Mark:
    """A vertical line, such as the round of clustering."""

    x: float
    text: str


@dataclass(frozen=True)
class Chart:
    """Lines over one axis."""

    title: str
    x_title: str
    y_title: str
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...] = ()
    log_x: bool = False
    categories: tuple[str, ...] = ()  # names of x = 0, 1, 2, ... where x are no numbers
    from_zero: bool = False  # whether the vertical axis begins at 0


@dataclass(frozen=True)
class Branch:
    """Two clusters that are joined: the four corners of a bracket, from one foot to the other."""

    at: tuple[float, float, float, float]  # in rows of the heat map as shown, from 0
    height: tuple[float, float, float, float]


@dataclass(frozen=True, eq=False)
class Heatmap:
    """A matrix as colours, its rows and columns in the order in which they are to be shown."""

    title: str
    value_title: str  # what a value is
    values: NDArray[np.float64]  # (R, C)
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    tree: tuple[Branch, ...] = ()  # the dendrogram of the rows
    breaks: tuple[int, ...] = ()  # rows, and columns of a square matrix, where clusters begin
    details: tuple[str, ...] = ()  # more to know about each row


@dataclass(frozen=True)
class Dot:
    """A client, say."""

    x: float
    y: float
    size: float  # in proportion to its area
    group: str  # dots of one group have one colour and one shape
    text: str  # what there is to know about it


@dataclass(frozen=True)
class Label:
    """A word at a place."""

    x: float
    y: float
    text: str


@dataclass(frozen=True)
class Scatter:
    """Dots in the plane."""

    title: str
    x_title: str
    y_title: str
    dots: tuple[Dot, ...]
    group_title: str = ""  # what the groups of dots are; nothing: they have no legend
    labels: tuple[Label, ...] = ()
    is_map: bool = False  # places mean nothing: no axes, and the same scale on both

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of dots, in their order: numbers by size, then words by the alphabet."""
        return tuple(sorted({dot.group for dot in self.dots}, key=_by_number))


Figure = Chart | Heatmap | Scatter


def turn(cycle: Sequence[T], number: int) -> T:
    """The n-th of so many looks, again from the first after the last."""
    return cycle[number % len(cycle)]


def _by_number(name: str) -> tuple[bool, float, str]:
    return (False, int(name), "") if name.isdecimal() else (True, 0, name)
