"""Reproductions: tables or figures of papers whose cells are experiments."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Literal, TypeVar

from umbel.algorithms import Sattler
from umbel.algorithms.base import Algorithm
from umbel.checks import UsageError, check, nearest
from umbel.client.kernel_choice import Precision
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.library import shipped_experiments
from umbel.experiment.toml_file import read
from umbel.papers.findings import Findings

Size = Literal["smoke", "reduced", "full"]
"""Sizes: seconds, as a smoke test; minutes on two cores; and the paper's own size."""

T = TypeVar("T")


@dataclass(frozen=True)
class Cell:
    """One experiment of a table, with its row and column."""

    row: str
    column: str
    experiment: ExperimentSettings

    def in_precision(self, precision: Precision) -> Cell:
        """Return a copy in which clients compute in this precision."""
        engine = replace(self.experiment.engine, precision=precision)
        return replace(self, experiment=replace(self.experiment, engine=engine))


@dataclass(frozen=True)
class ColumnsPlot:
    """A chart of a measure against the columns: by number, or by name in order."""

    measure: str
    x_title: str
    log_x: bool = False
    numbers: Callable[[str], float] | None = None  # column's name -> x; None: use the names
    columns: tuple[str, ...] = ()  # only those that start with one of these; (): all


@dataclass(frozen=True)
class RoundsPlot:
    """Charts of a measure against the rounds, one per column."""

    measure: str


@dataclass(frozen=True)
class SpectrumPlot:
    """Charts of the singular values of clients' vectors for clustering, one per column."""


Plot = ColumnsPlot | RoundsPlot | SpectrumPlot


@dataclass(frozen=True)
class Reproduction:
    """A table or figure of a paper."""

    said: Findings
    make: Callable[[Size], Iterable[Cell]]
    measures: tuple[str, ...]  # of `umbel.papers.measures`, the most important first
    plots: tuple[Plot, ...]
    seeds: Mapping[Size, int] = field(default_factory=lambda: {"smoke": 1, "reduced": 2, "full": 5})
    baseline: str = ""  # the row that measures such as "saved_pure_round" compare with
    lockstep: bool = False  # whether small models make seeds faster side by side

    @property
    def name(self) -> str:
        """Its name for `umbel reproduce`."""
        return self.said.name

    def cells(self, size: Size) -> Sequence[Cell]:
        """Its experiments at this size, in the order of the table."""
        return tuple(self.make(size))

    def in_precision(self, precision: Precision) -> Reproduction:
        """Return a copy in which clients compute in this precision."""

        def make(size: Size) -> list[Cell]:
            return [cell.in_precision(precision) for cell in self.cells(size)]

        return replace(self, make=make)

    def only(self, names: Collection[str], size: Size) -> Reproduction:
        """Its part in these rows and columns at this size; all rows where none is named, likewise.

        Raises `UsageError` for a name that no row or column has, and where nothing is left.
        """
        cells = self.cells(size)
        rows = dict.fromkeys(cell.row for cell in cells)
        columns = dict.fromkeys(cell.column for cell in cells)
        every = [*rows, *columns]
        for name in names:
            if name not in every:
                hint = nearest(name, every)
                raise UsageError(f"only: {name!r} is not a row or column of {self.name}; {hint}")
        among_rows, among_columns = rows.keys() & names or rows, columns.keys() & names or columns
        left = [cell for cell in cells if cell.row in among_rows and cell.column in among_columns]
        check(bool(left), "only", [*names], f"a choice with results of {self.name} at size {size}")
        return replace(self, make=lambda _: left)


@cache
def shipped(name: str) -> ExperimentSettings:
    """An experiment that comes with the package, and defines the settings of its paper."""
    return read(shipped_experiments()[name])


def cells(
    like: ExperimentSettings,
    methods: Mapping[str, Algorithm[Any]],
    column: str,
    prefix: str,
) -> list[Cell]:
    """A column of a table: the experiment with one method per row.

    Sattler's method has all clients in every round.
    """
    return [
        Cell(
            row,
            column,
            replace(
                like,
                algorithm=method,
                name=slug(prefix, row),
                participation=1.0 if isinstance(method, Sattler) else like.participation,
            ),
        )
        for row, method in methods.items()
    ]


def pick(size: Size, *, smoke: T, reduced: T, full: T) -> T:
    """The value to use at this size."""
    return {"smoke": smoke, "reduced": reduced, "full": full}[size]


def slug(*parts: str) -> str:
    """A folder name from names of rows and columns."""
    text = "-".join(parts).lower().replace("λ = ", "lambda")
    kept = "".join(c if c.isalnum() or c in ".+-" else "-" for c in text)
    return "-".join(filter(None, kept.split("-")))


def number_of(column: str) -> float:
    """The number in the name of a column such as "C = 32"."""
    return float(column.rpartition(" = ")[2])
