"""The column to predict: classes or numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError, check
from umbel.data.tables.kinds import ColumnWords, Kind, column_of, kind_of, whole_numbers
from umbel.data.tables.reading import TableRows
from umbel.summary import in_short

Task = Literal["auto", "classification", "regression"]

MOST_CLASSES = 100
"""More whole numbers, or more texts most of which occur once, need a `task`."""

FEW_NUMBERS = 10
"""Whole numbers written as 1.0 need a `task` if at most this many of them differ."""


@dataclass(frozen=True)
class Targets:
    """The target of each row."""

    values: NDArray[Any]  # (n,) labels, or numbers as doubles; -1 or NaN if missing
    classes: tuple[str, ...] | None  # names of the labels; None: regression
    kind: Kind = "number"  # kind of the column

    __repr__ = in_short

    @property
    def missing(self) -> NDArray[np.bool_]:
        """(n,) whether a row has no target."""
        return np.isnan(self.values) if self.classes is None else self.values < 0


def targets_of(rows: TableRows, name: str, task: Task, kind: Kind | None) -> Targets:
    """The targets of a table; for the task "auto", words, bools and integers are classes.

    `kind` is the column's; if it is None, its values tell.

    Classes are numbered in the order of their names, or of their numbers. Raises `UsageError` if
    the column does not fit the task.
    """
    named, kind = kind is not None, kind or kind_of(rows, name, is_target=True)
    what = f"{rows.files[0]}: target {name!r}"
    if kind == "date":
        raise UsageError(
            f"{what}: holds dates, which are neither classes nor numbers; name another"
        )
    column = column_of(rows, name, kind)
    if isinstance(column, ColumnWords):
        fine = task != "regression"
        check(fine, what, "a column of texts", "one of numbers, as regression needs")
        if task == "auto" and not named:
            _check_texts(column, what)
        return _labels(column.codes, np.array(column.words))
    numbers, missing = column.values, np.isnan(column.values)
    whole = column.whole or bool((numbers[~missing] % 1 == 0).all())
    gaps, few = bool(missing.any()), len(np.unique(numbers[~missing])) <= FEW_NUMBERS
    unclear = task == "auto" and whole and not column.whole and (gaps or few)
    expected = 'clearly classes or numbers; write task = "classification" or "regression"'
    said = (
        "a column of whole numbers with gaps"
        if gaps
        else "a column of whole numbers written as 1.0"
    )
    check(not unclear, what, said, expected)
    if task == "regression" or (task == "auto" and not column.whole):
        return Targets(numbers, None)
    if not whole:
        row = int((numbers % 1 > 0).argmax())
        raise UsageError(f"{rows.at(row, name)}: is not a whole number, as classes are")
    different, codes = np.unique(whole_numbers(rows, name), return_inverse=True)
    expected = 'few enough to be classes: write task = "regression", or "classification"'
    said = f"{len(different):,} different whole numbers"
    check(task != "auto" or len(different) <= MOST_CLASSES, what, said, expected)
    placed = np.full(len(numbers), -1)
    placed[~missing] = codes
    return Targets(placed, tuple(str(number) for number in different))


def _check_texts(column: ColumnWords, what: str) -> None:
    """Raise `UsageError` for many texts, most of them in one row alone, such as amounts."""
    rows = column.codes[column.codes >= 0]
    alone, most = int((np.bincount(rows) == 1).sum()), max(len(column.words) // 2, len(rows) // 10)
    expected = 'few enough to be classes: write numbers as numbers, or task = "classification"'
    said = f"{len(column.words):,} different texts in {len(rows):,} rows, {alone:,} of them once,"
    check(len(column.words) <= MOST_CLASSES or alone <= most, what, said, expected)


def _labels(codes: NDArray[np.int64], words: NDArray[np.str_]) -> Targets:
    order = np.argsort(words)
    rank = np.append(np.argsort(order), -1)  # missing values have the code -1
    return Targets(rank[codes], tuple(words[order].tolist()), "category")
