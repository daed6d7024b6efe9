"""The division of a table's rows into training, validation and test, by client."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError, check
from umbel.data.split_names import split_named
from umbel.data.tables.kinds import ColumnWords, Numbers
from umbel.data.tables.missing import in_brackets
from umbel.data.tables.reading import TableRows
from umbel.seeds import Stream, generator

Places: TypeAlias = NDArray[np.int64]
"""Numbers of rows."""

PARTS = ("train", "validation", "test")


@dataclass(frozen=True)
class Parts:
    """One client's rows for training, validation and test."""

    train: Places
    validation: Places
    test: Places

    def limited(self, most: Sequence[int], rng: np.random.Generator) -> Parts:
        """At most `most` rows of each part, drawn at random; 0: all. The order is kept."""
        return Parts(*(few(getattr(self, p), n, rng) for p, n in zip(PARTS, most, strict=True)))


def divided(
    rows: Places, fractions: tuple[float, float], rng: np.random.Generator | None = None
) -> Parts:
    """The last rows are for the test, those before for validation; with `rng`, random rows.

    `fractions` are (validation, as a share of the rows that are not for the test; test, as a share
    of all rows).
    """
    order = rows if rng is None else rng.permutation(rows)
    rest = len(order) - round(fractions[1] * len(order))
    first = rest - round(fractions[0] * rest)
    return Parts(order[:first], order[first:rest], order[rest:])


def check_fractions(validation: float | None, test: float) -> None:
    """Raise `UsageError` unless these fractions leave some examples for training."""
    check(0 <= test < 1, "test_fraction", test, "in [0, 1)")
    fine = validation is None or 0 <= validation < 1
    check(fine, "validation_fraction", validation, "in [0, 1)")


def in_time(rows: TableRows, clients: Sequence[Places], columns: Sequence[Numbers]) -> list[Places]:
    """Each client's rows, sorted by these columns, by the first one first."""
    for column in columns:
        gaps = np.isnan(column.values)
        if gaps.any():
            where = rows.at(int(gaps.argmax()), column.name)
            how = "remove such rows, or order rows by another column"
            also = in_brackets(rows, column.name)
            raise UsageError(f"{where}: the time is missing{also}; {how}")
    keys = [column.values for column in reversed(columns)]
    return [mine[np.lexsort([key[mine] for key in keys])] for mine in clients]


def by_column(rows: TableRows, mine: Places, column: ColumnWords) -> Parts:
    """A client's rows, divided by a column with the values train, validation and test, or alike."""
    named = map(split_named, (*column.words, ""))
    said = np.array([-1 if part is None else PARTS.index(part) for part in named])
    found = said[column.codes[mine]]  # missing values get the last one
    if (found < 0).any():
        where = rows.at(int(mine[int((found < 0).argmax())]), column.name)
        also = in_brackets(rows, column.name)
        raise UsageError(f"{where}: is not train, validation or test, as each row needs{also}")
    return Parts(*(mine[found == part] for part in range(len(PARTS))))


def client_generator(seed: int, client: int) -> np.random.Generator:
    """The random generator for one client's rows."""
    return generator(seed, Stream.DATA, client)


def few(rows: Places, most: int, rng: np.random.Generator) -> Places:
    """At most `most` of these rows, drawn at random; 0: all. The order is kept."""
    if not most or len(rows) <= most:
        return rows
    return rows[np.sort(rng.choice(len(rows), most, replace=False))]
