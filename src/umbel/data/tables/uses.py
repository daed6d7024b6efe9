"""Which columns of a table are no inputs: an index is left out, and doubtful ones are warned of."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError
from umbel.data.tables.kinds import ColumnWords, Numbers, column_of
from umbel.data.tables.parts import Places
from umbel.data.tables.reading import TableRows
from umbel.data.tables.wording import listed

MADE = re.compile(
    r"(?i:unnamed: ?\d+(\.\d+|_level_\d+)*|level_\d+|\.\.\.\d+|_c0|index|row[ ._]?names?)"
)
"""Names that programs give to the index of a table when they write or read it."""

SHORT = re.compile(
    r"X(\.\d+)?|V1|(?i:column1|idx|rn|row([ ._-]?(id|idx|index|num(ber)?|nr|no))?)|#"
)
"""Names of an index that other columns may have, too: their values decide."""

ID = re.compile(r"(.*[^a-z])?(id|ids|uuid|guid|key)", re.I)
"""Names of columns that identify something; `patientId` is tried as `patient_Id`."""

FEWEST_ROWS = 10
"""Rows from which values that are all different say something."""

ALMOST_ALL = 0.9
"""Share of different texts among rows from which they are probably names or free texts."""

COLLISIONS = 10.0
"""If chance would repeat so many numbers in their range, and none is repeated, they number rows."""


@dataclass(frozen=True, kw_only=True)
class Unused:
    """A column of a table that is no input, and what it is."""

    name: str
    use: str


def indexes(
    rows: TableRows, names: Sequence[str], owners: NDArray[np.int64], named: Collection[str]
) -> list[Unused]:
    """The columns that no user has `named` and that can only be an index, or hold nothing.

    `owners` are the clients of the rows.
    """
    return [
        Unused(name=name, use=f"left out ({why})")
        for name in names
        if name not in named and (why := _no_input(rows, name, owners))
    ]


def _no_input(rows: TableRows, name: str, owners: NDArray[np.int64]) -> str:
    """Why a column can't be an input; "" if it can."""
    if name in rows.index:
        return "the table's index"
    series = rows.columns[name]
    if not series.notna().any():
        return "empty"
    if not (MADE.fullmatch(name) or SHORT.fullmatch(name)):
        return ""
    try:
        column = column_of(rows, name)
    except UsageError:
        return ""  # refused later, as an input
    if isinstance(column, ColumnWords):
        return "names of rows" if _all_differ(column) else ""
    return "row numbers" if not column.dates and is_index(name, column.values, owners) else ""


def _all_differ(column: ColumnWords) -> bool:
    return len(column.codes) > 1 and len(column.words) == len(column.codes)


def is_index(name: str, values: NDArray[np.float64], owners: NDArray[np.int64]) -> bool:
    """Whether these values, and the name of their column, are those of an index."""
    if len(values) < 2 or not bool((values % 1 == 0).all()):  # NaN and infinity are not, either
        return False
    if numbers_rows(values) or numbers_rows(values, owners):
        return bool(MADE.fullmatch(name) or SHORT.fullmatch(name))
    different, times = np.unique(values, return_counts=True)
    if SHORT.fullmatch(name):  # of a table from which rows were taken
        return bool((np.diff(values) > 0).all())
    # Tables that were joined have several such ranges, of different lengths, in any order.
    ranges = different[0] in (0, 1) and bool((np.diff(different) == 1).all())
    joined = ranges and len(different) >= FEWEST_ROWS and bool((np.diff(times) <= 0).all())
    return bool(MADE.fullmatch(name)) and (joined or len(different) == len(values))


def numbers_rows(values: NDArray[np.float64], owners: NDArray[np.int64] | None = None) -> bool:
    """Whether values are 0 to n - 1, or 1 to n, in any order; with `owners`, for each of them."""
    owners = np.zeros(len(values), dtype=np.int64) if owners is None else owners
    order = np.lexsort([values, owners])
    sorted_, of = values[order], owners[order]
    begins = np.append(True, of[1:] != of[:-1])
    first = sorted_[0]
    steps = np.diff(sorted_)[~begins[1:]]
    starts_alike = bool((sorted_[begins] == first).all()) and first in (0, 1)
    return starts_alike and bool((steps == 1).all()) and len(values) >= 2 * int(begins.sum())


def doubtful(
    columns: Sequence[Numbers | ColumnWords],
    train: Places,
    owners: NDArray[np.int64],
    labels: NDArray[Any] | None = None,
) -> dict[str, list[str]]:
    """What inputs have that probably are none -> the names of their columns.

    `train` are the training rows, `owners` the clients of all rows, and `labels` their classes.
    """
    found: dict[str, list[str]] = {}
    for column in columns:
        fault = _fault(column, train, owners)
        if not fault and labels is not None and _copies(column, labels, train):
            fault = "another value for each class, as a copy of the target has"
        if fault:
            found.setdefault(fault, []).append(column.name)
    return found


def sentence(fault: str, names: Sequence[str]) -> str:
    """`column 'row' has another whole number in every row`."""
    which = f"column {names[0]!r} has" if len(names) == 1 else f"columns {listed(names)} have"
    return f"{which} {fault}"


def _fault(column: Numbers | ColumnWords, train: Places, owners: NDArray[np.int64]) -> str:
    """What a doubtful column has; "" if there is no doubt."""
    values = column.values if isinstance(column, Numbers) else column.codes
    if len(train) >= FEWEST_ROWS and bool((values[train] == values[train[0]]).all()):
        return "only one value in training rows, from which no model learns"
    if len(values) < FEWEST_ROWS:
        return ""
    if isinstance(column, ColumnWords):
        filled = int((column.codes >= 0).sum())
        many = filled >= FEWEST_ROWS and len(column.words) >= ALMOST_ALL * filled
        return "another text in almost every row, as names have" if many else ""
    if column.dates or not _identifies(column, owners):
        return ""
    return "another whole number in every row, as row numbers and identifiers have"


def _copies(column: Numbers | ColumnWords, labels: NDArray[Any], train: Places) -> bool:
    """Whether training rows of one class have one value, and rows of another class another one."""
    values = (column.values if isinstance(column, Numbers) else column.codes)[train]
    pairs = np.unique(np.stack([values, labels[train]]), axis=1)
    counts = {len(np.unique(each)) for each in pairs}
    return len(train) >= FEWEST_ROWS and counts == {pairs.shape[1]} and pairs.shape[1] > 1


def _identifies(column: Numbers, owners: NDArray[np.int64]) -> bool:
    """Whether numbers are those of rows, of all or of each client, or of things."""
    values = column.values
    if not bool((values % 1 == 0).all()):
        return False
    if np.bincount(owners[owners >= 0]).min() >= FEWEST_ROWS and numbers_rows(values, owners):
        return True
    if len(np.unique(values)) < len(values):
        return False
    split = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", column.name)
    by_chance = len(values) ** 2 / (2 * (values.max() - values.min() + 1))
    return by_chance > COLLISIONS or bool(ID.fullmatch(split))
