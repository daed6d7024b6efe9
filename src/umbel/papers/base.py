"""What a reproduction is: a table or figure of a paper, cell by cell, each an experiment."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar, get_args

from umbel.runs.experiment import Experiment

Size = Literal["smoke", "reduced", "full"]
"""Seconds, to see that it runs; minutes on two cores; or what the paper did."""

SIZES: tuple[Size, ...] = get_args(Size)

T = TypeVar("T")


@dataclass(frozen=True)
class Published:
    """A number of a paper: its mean, with the standard deviation where one is printed."""

    mean: float
    std: float = 0.0
    about: bool = False  # read off a figure, or from words such as "close to"

    def __str__(self) -> str:
        spread = f" ± {self.std:g}" if self.std else ""
        return f"{'about ' if self.about else ''}{self.mean:g}{spread}"


@dataclass(frozen=True)
class Cell:
    """One experiment of a table: in which row and column it stands, and what the paper has there.

    `measures` are those of `umbel.papers.measures`, by name.
    """

    row: str
    column: str
    experiment: Experiment
    published: Mapping[str, Published] = field(default_factory=dict)  # by measure


@dataclass(frozen=True)
class Sweep:
    """A figure of a measure against the columns: numbers, or names in their order."""

    measure: str
    x_title: str
    log_x: bool = False
    numbers: Callable[[str], float] | None = None  # of a column's name; None: the names
    columns: tuple[str, ...] = ()  # only those that start with one of these; (): all


@dataclass(frozen=True)
class Course:
    """A figure of a measure against the rounds, a chart a column."""

    measure: str


@dataclass(frozen=True)
class Spectrum:
    """A figure of the singular values of what clients are clustered by, a chart a column."""


Figure = Sweep | Course | Spectrum


@dataclass(frozen=True)
class Reproduction:
    """A table or figure of a paper."""

    name: str
    source: str  # such as "Kim et al. 2024, Table 10"
    title: str
    make: Callable[[Size], Sequence[Cell]]
    measures: tuple[str, ...]  # what is compared, the most important first
    seeds: Mapping[Size, int]
    figures: tuple[Figure, ...]
    setting: str  # what is done, at full size
    reduced: str = ""  # what the reduced size changes
    baseline: str = ""  # the row that measures such as "saved_pure_round" compare with
    lockstep: bool = False  # whether its models are so small that seeds go faster side by side
    needs: tuple[str, ...] = ()  # data sets, by their name in the data directory
    absent: str = ""  # why no result is kept, where none is
    remarks: str = ""  # where ours differs from the paper's, and why

    def cells(self, size: Size) -> Sequence[Cell]:
        """Its experiments at this size, in the order of the table."""
        return self.make(size)


def pick(size: Size, *, smoke: T, reduced: T, full: T) -> T:
    """What to use at this size."""
    return {"smoke": smoke, "reduced": reduced, "full": full}[size]


def slug(*parts: str) -> str:
    """A name for a folder, of names of rows and columns."""
    text = "-".join(parts).lower()
    kept = "".join(c if c.isalnum() or c in ".+-" else "-" for c in text)
    return "-".join(filter(None, kept.split("-")))


def number_of(column: str) -> float:
    """The number in the name of a column such as "C = 32"."""
    return float(column.rpartition(" = ")[2])
