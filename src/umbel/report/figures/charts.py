"""Figures as values, independent of the library that draws them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass
from math import inf
from typing import TypeAlias, TypeVar

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
"""Colours that colour-blind readers can distinguish, too (Okabe & Ito 2008)."""

DOTS_ACROSS = 60
"""Dots that fit side by side along a row; values closer than that are shifted aside."""

ROOM_ASIDE = 0.38
"""Largest shift of a dot, of the 0.5 of a row on each side: rows stay apart."""

T = TypeVar("T")

Bounds: TypeAlias = tuple[float, float]
"""Lower and upper bound of a measure."""

SHARE, INDEX, POSITIVE, COUNT = (0.0, 1.0), (-0.5, 1.0), (0.0, inf), (1.0, inf)
"""The bounds of an accuracy, of the adjusted Rand index, of a loss and of a number of clusters."""


@dataclass(frozen=True)
class Line:
    """A curve or a row of points. NaN in `y` leaves a gap."""

    name: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    low: tuple[float, ...] = ()  # a band, as long as x, or nothing
    high: tuple[float, ...] = ()
    _: KW_ONLY
    published: bool = False  # from a paper: drawn in another style
    points: bool = False  # markers, with error bars from the band, instead of a line
    muted: bool = False  # grey, and not in the legend

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
    """A chart of lines over a common axis."""

    title: str
    x_title: str
    y_title: str
    lines: tuple[Line, ...]
    marks: tuple[Mark, ...] = ()
    _: KW_ONLY
    log_x: bool = False
    categories: tuple[str, ...] = ()  # names of x = 0, 1, 2, ... if x are not numbers
    from_zero: bool = False  # whether the vertical axis starts at 0
    counts: bool = False  # whether values are counts, so that ticks are integers
    limit: float | None = None  # a horizontal line, dashed


@dataclass(frozen=True)
class Branch:
    """Two clusters that are joined: the four corners of a bracket, from one foot to the other."""

    at: tuple[float, float, float, float]  # in rows of the heat map as shown, from 0
    height: tuple[float, float, float, float]


@dataclass(frozen=True, eq=False)
class Heatmap:
    """A matrix as colours, with rows and columns in the order of display."""

    title: str
    value_title: str  # meaning of the values
    values: NDArray[np.float64]  # (R, C)
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    _: KW_ONLY
    tree: tuple[Branch, ...] = ()  # the dendrogram of the rows
    details: tuple[str, ...] = ()  # further text about each row
    clusters: tuple[str, ...] = ()  # the cluster of each row, one cluster after another


@dataclass(frozen=True)
class Dot:
    """A dot for an item such as a client."""

    x: float
    y: float
    size: float  # proportional to the area
    group: str  # dots of one group have one colour
    text: str  # what there is to know about it
    name: str = ""  # a short name is written on the dot
    kind: str = ""  # dots of one kind have one shape


@dataclass(frozen=True)
class Label:
    """A text at a position."""

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
    group_title: str = ""  # meaning of the groups; "": no legend
    _: KW_ONLY
    labels: tuple[Label, ...] = ()
    # positions have no meaning: no axes, and the same scale in both directions
    is_map: bool = False
    kind_title: str = ""  # meaning of the kinds
    whole_numbers: bool = False  # whether positions are counts and numbers of things

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of dots, in their order."""
        return in_order(dot.group for dot in self.dots)

    @property
    def room(self) -> tuple[Bounds, Bounds]:
        """The limits of a map, across and upwards, with room for its words."""
        xs = [*(dot.x for dot in self.dots), *(label.x for label in self.labels)]
        ys = [*(dot.y for dot in self.dots), *(label.y for label in self.labels)]
        across = min(xs, default=0.0) - 1.2, max(xs, default=0.0) + 1.2
        return across, (min(ys, default=0.0) - 0.6, max(ys, default=0.0) + 0.9)


@dataclass(frozen=True)
class Middle:
    """A mean with its interval."""

    at: float
    low: float
    high: float
    _: KW_ONLY
    sure: bool = True  # drawn as a filled marker; else hollow
    text: str = ""  # what there is to know about it


@dataclass(frozen=True)
class Strip:
    """A row with its name beside it: dots along one axis, and their mean."""

    name: str
    dots: tuple[Dot, ...] = ()  # y: from -0.5 to 0.5 across the row
    middle: Middle | None = None


@dataclass(frozen=True)
class Strips:
    """Rows over one axis, the first on top."""

    title: str
    x_title: str
    strips: tuple[Strip, ...]
    group_title: str = ""
    _: KW_ONLY
    sides: tuple[str, str] | None = None  # titles for below zero, and above

    @property
    def groups(self) -> tuple[str, ...]:
        """The groups of dots, in their order."""
        return in_order(dot.group for strip in self.strips for dot in strip.dots)


Figure = Chart | Heatmap | Scatter | Strips


def band(
    mean: Sequence[float], deviation: Sequence[float], bounds: Bounds
) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Bands from one deviation below each mean to one above, within the measure's bounds.

    Losses of one's own objective may be below zero: a line beyond the bounds has none.
    """
    low, high = bounds
    if any(m < low or m > high for m in mean):
        low, high = -inf, inf
    pairs = list(zip(mean, deviation, strict=True))
    return tuple(max(m - d, low) for m, d in pairs), tuple(min(m + d, high) for m, d in pairs)


def turn(cycle: Sequence[T], number: int) -> T:
    """Return the n-th look, starting again after the last."""
    return cycle[number % len(cycle)]


def in_order(names: Iterable[str]) -> tuple[str, ...]:
    """Each name once: numbers in ascending order, then words in alphabetical order."""
    return tuple(sorted(set(names), key=_by_number))


def swarm(values: Sequence[float]) -> list[float]:
    """The shift of each dot in a row, so that no dot hides another."""
    reach = (max(values) - min(values)) / DOTS_ACROSS if values else 0.0
    taken: dict[int, int] = {}
    aside = []
    for value in values:
        place = round((value - min(values)) / reach) if reach else 0
        number = taken[place] = taken.get(place, -1) + 1
        aside.append((number + 1) // 2 * (1 if number % 2 else -1))
    step = min(0.1, ROOM_ASIDE / max(1, *map(abs, aside))) if aside else 0.0
    return [each * step for each in aside]


def _by_number(name: str) -> tuple[bool, float, str]:
    return (False, int(name), "") if name.isdecimal() else (True, 0, name)
