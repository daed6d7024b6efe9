"""Rows of a table as inputs of a model: numbers, gaps, categories and hashed texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from umbel.checks import UsageError
from umbel.data.conventions import warn_of_units
from umbel.data.scaling import Scale
from umbel.data.tables.kinds import ColumnWords, Numbers, as_known
from umbel.data.tables.parts import Places
from umbel.data.tables.reading import TableRows
from umbel.data.tables.statistics import Column, matrix

LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Encoder:
    """Features of rows: numbers, then indicators of missing numbers, categories, and texts.

    A category that no training row has gets no own feature: it counts as one of the others, or is 0
    in all features.
    """

    table: TableRows  # for the positions of rows in messages
    columns: tuple[Column, ...]  # numbers and dates first, then categories, then texts
    values: Sequence[Numbers | ColumnWords]  # of these columns
    scaled: bool
    buckets: int  # number of features of a text

    @property
    def width(self) -> int:
        """The number of features."""
        of_each = {"category": 0, "text": self.buckets, "number": 1, "date": 1}
        return sum(of_each[c.kind] + c.gaps + len(c.known) + c.others for c in self.columns)

    @property
    def numbers(self) -> list[Numbers]:
        """The columns of numbers and dates."""
        return [each for each in self.values if isinstance(each, Numbers)]

    def __call__(self, rows: Places) -> NDArray[np.float32]:
        """The features (rows, width). Raises `UsageError` for a number that is too large."""
        values, about = matrix(self.numbers, rows), self.columns[: len(self.numbers)]
        means = np.array([column.mean for column in about])
        scale = Scale(means, np.array([column.deviation for column in about]))
        filled = scale(values) if self.scaled else np.where(np.isnan(values), means, values)
        gaps = np.isnan(values)[:, np.array([column.gaps for column in about], dtype=bool)]
        names = [column.name for column in about]
        parts = [in_single(filled, names, rows, self.table), gaps]
        for column, read in zip(self.columns, self.values, strict=True):
            if isinstance(read, ColumnWords) and column.kind == "text":
                parts.append(hashed_texts([read.word(row) or "" for row in rows], self.buckets))
            elif isinstance(read, ColumnWords):
                parts.append(_indicators(column, read, rows))
        return np.concatenate(parts, axis=1, dtype=np.float32)

    def warn_of_units(self, clients: Sequence[Places], names: Sequence[str]) -> None:
        """Warn if clients' numbers in a column are probably in different units."""
        numbers = [column for column in self.numbers if not column.dates]
        shards = [torch.from_numpy(matrix(numbers, rows)) for rows in clients]
        warn_of_units(shards, names, [column.name for column in numbers])


def _indicators(column: Column, read: ColumnWords, rows: Places) -> NDArray[np.float32]:
    """A feature for each known category, and one for all others if they share one."""
    width = len(column.known) + column.others
    places = {category: place for place, category in enumerate(column.known)}
    other = len(column.known) if column.others else width  # column `width` is cut off later
    words = as_known(read.words, [word for word in column.known if word is not None])
    place = np.array([places.get(word, other) for word in (*words, None)])
    return np.eye(width + 1, dtype=np.float32)[place[read.codes[rows]], :width]


def in_single(
    values: NDArray[np.float64], names: Sequence[str], rows: Places, table: TableRows
) -> NDArray[np.float32]:
    """Values (rows, columns) of these rows and columns of a table, in single precision.

    Raises `UsageError`, with row and column, for a value that is too large for it.
    """
    large = np.abs(values) > LARGEST
    if large.any():
        row, column = np.argwhere(large)[0]
        where = table.at(int(rows[row]), names[column])
        raise UsageError(
            f"{where}: is too large for models, which take numbers up to {LARGEST:.1e}"
        )
    return values.astype(np.float32)


def hashed_texts(texts: Sequence[str], buckets: int) -> NDArray[np.float32]:
    """Counts (n, buckets) of the words of texts, with signs and scaled to length 1."""
    from sklearn.feature_extraction.text import HashingVectorizer  # slow to import

    if not texts:
        return np.zeros((0, buckets), dtype=np.float32)
    found = HashingVectorizer(n_features=buckets, dtype=np.float32).transform(texts)
    return np.asarray(found.toarray(), dtype=np.float32)
