"""Statistics for the encoding of numbers and categories, from training rows, pooled or federated.

Pooled statistics use all clients' training rows together. Federated statistics use only data that
clients would send: counts, sums and lists of categories. Both agree up to rounding.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError
from umbel.data import scaling
from umbel.data.scaling import Scale
from umbel.data.tables.kinds import ColumnWords, Numbers
from umbel.data.tables.parts import Places
from umbel.summary import in_short

Source = Literal["pooled", "federated"]

Category: TypeAlias = "str | None"
"""A category; None is the category of missing values."""


@dataclass(frozen=True)
class Categories:
    """The categories of one column that have their own features, in order."""

    known: tuple[Category, ...]
    others: bool  # whether training rows have further categories, which share a feature


@dataclass(frozen=True)
class Statistics:
    """The statistics that are learnt from the training rows of all clients."""

    scale: Scale  # scale of the columns of numbers, in order
    gaps: NDArray[np.bool_]  # (F,) whether a column of numbers has missing values
    categories: Mapping[str, Categories]  # by column

    __repr__ = in_short


def statistics_of(
    numbers: Sequence[Numbers],
    words: Sequence[ColumnWords],
    clients: Sequence[Places],  # the training rows of each client
    source: Source,
    least_clients: int,
) -> Statistics:
    """Statistics of these columns. Categories count if at least `least_clients` have them."""
    shards = [matrix(numbers, rows) for rows in clients]
    if source == "federated":
        scale = scaling.federated(shards)
        gaps = np.any([np.isnan(shard).any(0) for shard in shards], axis=0)
    else:
        values = matrix(numbers, np.concatenate(clients))
        scale, gaps = scaling.pooled(values), np.isnan(values).any(0)
    for column, mean in zip(numbers, scale.mean, strict=True):
        if np.isnan(mean):
            none = "has no value in any training row: name it in leave_out"
            raise UsageError(f"column {column.name!r}: {none}")
    count: Callable[..., Categories] = _federated if source == "federated" else _pooled
    found = {column.name: count(column, clients, least_clients) for column in words}
    return Statistics(scale, gaps, found)


def matrix(columns: Sequence[Numbers], rows: Places) -> NDArray[np.float64]:
    """Columns of numbers side by side, (rows, columns)."""
    values = [column.values[rows] for column in columns]
    return np.stack(values, axis=1) if values else np.zeros((len(rows), 0))


def _pooled(column: ColumnWords, clients: Sequence[Places], least: int) -> Categories:
    sizes = [len(rows) for rows in clients]
    owners = np.repeat(np.arange(len(clients)), sizes)
    codes = column.codes[np.concatenate(clients)]
    pairs = np.unique(np.stack([codes, owners]), axis=1)
    present, holders = np.unique(pairs[0], return_counts=True)
    kept = [None if c < 0 else column.words[c] for c in present[holders >= least]]
    return Categories(_ordered(kept), others=bool((holders < least).any()))


def _federated(column: ColumnWords, clients: Sequence[Places], least: int) -> Categories:
    """Clients send their categories, then whether the agreed list omits any of them."""
    held = [{column.word(r) for r in rows[_firsts(column.codes[rows])]} for rows in clients]
    holders = Counter(category for mine in held for category in mine)
    known = _ordered([category for category, count in holders.items() if count >= least])
    return Categories(known, others=any(mine - set(known) for mine in held))


def _firsts(codes: NDArray[np.int64]) -> NDArray[np.int64]:
    """A row of each code."""
    return np.unique(codes, return_index=True)[1]


def _ordered(categories: Sequence[Category]) -> tuple[Category, ...]:
    """The categories sorted by name; missing values come last."""
    return tuple(sorted(categories, key=lambda category: (category is None, category or "")))
