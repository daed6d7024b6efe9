"""Rows of a table as inputs of a model: numbers, gaps, categories and hashed texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from umbel.checks import UsageError
from umbel.data.conventions import warn_of_units
from umbel.data.tables.kinds import ColumnWords, Numbers, as_known
from umbel.data.tables.parts import Places
from umbel.data.tables.reading import TableRows
from umbel.data.tables.statistics import Statistics, matrix

LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class Encoder:
    """Features of rows: numbers, then indicators of missing numbers, categories, and texts.

    A category that no training row has gets no own feature: it counts as one of the others, or is 0
    in all features.
    """

    table: TableRows  # for the positions of rows in messages
    numbers: Sequence[Numbers]
    categories: Sequence[ColumnWords]
    texts: Sequence[ColumnWords]
    statistics: Statistics
    scaled: bool
    buckets: int  # number of features of a text

    @property
    def width(self) -> int:
        """The number of features."""
        of_words = sum(len(c.known) + c.others for c in self.statistics.categories.values())
        gaps = int(self.statistics.gaps.sum())
        return len(self.numbers) + gaps + of_words + self.buckets * len(self.texts)

    def __call__(self, rows: Places) -> NDArray[np.float32]:
        """The features (rows, width). Raises `UsageError` for a number that is too large."""
        values, scale = matrix(self.numbers, rows), self.statistics.scale
        filled = scale(values) if self.scaled else np.where(np.isnan(values), scale.mean, values)
        names = [column.name for column in self.numbers]
        parts = [
            in_single(filled, names, rows, self.table),
            np.isnan(values)[:, self.statistics.gaps],
        ]
        parts += [self._indicators(column, rows) for column in self.categories]
        parts += [_hashed(column, rows, self.buckets) for column in self.texts]
        return np.concatenate(parts, axis=1, dtype=np.float32)

    def warn_of_units(self, clients: Sequence[Places], names: Sequence[str]) -> None:
        """Warn if clients' numbers in a column are probably in different units."""
        numbers = [column for column in self.numbers if not column.dates]
        shards = [torch.from_numpy(matrix(numbers, rows)) for rows in clients]
        warn_of_units(shards, names, [column.name for column in numbers])

    def _indicators(self, column: ColumnWords, rows: Places) -> NDArray[np.float32]:
        about = self.statistics.categories[column.name]
        width = len(about.known) + about.others
        places = {category: place for place, category in enumerate(about.known)}
        other = len(about.known) if about.others else width  # column `width` is cut off later
        words = as_known(column.words, [word for word in about.known if word is not None])
        place = np.array([places.get(word, other) for word in (*words, None)])
        return np.eye(width + 1, dtype=np.float32)[place[column.codes[rows]], :width]


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


def _hashed(column: ColumnWords, rows: Places, buckets: int) -> NDArray[np.float32]:
    """Counts of a text's words in buckets by their hashes, without a list of words."""
    return hashed_texts([column.word(row) or "" for row in rows], buckets)


def hashed_texts(texts: Sequence[str], buckets: int) -> NDArray[np.float32]:
    """Counts (n, buckets) of the words of texts, with signs and scaled to length 1."""
    from sklearn.feature_extraction.text import HashingVectorizer  # slow to import

    if not texts:
        return np.zeros((0, buckets), dtype=np.float32)
    found = HashingVectorizer(n_features=buckets, dtype=np.float32).transform(texts)
    return np.asarray(found.toarray(), dtype=np.float32)
