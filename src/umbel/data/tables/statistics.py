"""The columns that inputs are made from, with statistics of training rows, pooled or federated.

Pooled scales use all clients' training rows together, federated ones only counts and sums that
clients would send; both agree up to rounding. Of categories, clients' lists are enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError
from umbel.data import scaling
from umbel.data.tables.kinds import ColumnWords, Kind, Numbers
from umbel.data.tables.parts import Places

Source = Literal["pooled", "federated"]

Category: TypeAlias = "str | None"
"""A category; None is the category of missing values."""


@dataclass(frozen=True, kw_only=True)
class Column:
    """A column that inputs are made from."""

    name: str
    kind: Kind
    mean: float = 0.0  # mean of numbers and dates; so are the next two fields for them
    deviation: float = 1.0
    gaps: bool = False  # whether a feature marks missing values
    # the categories with a feature; None stands for missing values
    known: tuple[Category, ...] = ()
    others: bool = False  # whether all other categories share a feature


def columns_of(
    numbers: Sequence[Numbers],
    words: Sequence[ColumnWords],
    clients: Sequence[Places],  # the training rows of each client
    source: Source,
    least_clients: int,
) -> tuple[Column, ...]:
    """These columns with their statistics; categories count if `least_clients` have them."""
    shards = [matrix(numbers, rows) for rows in clients]
    every = matrix(numbers, np.concatenate(clients))
    scale = scaling.federated(shards) if source == "federated" else scaling.pooled(every)
    found = []
    for place, column in enumerate(numbers):
        mean, deviation = float(scale.mean[place]), float(scale.deviation[place])
        if np.isnan(mean):
            none = "has no value in any training row: name it in leave_out"
            raise UsageError(f"column {column.name!r}: {none}")
        kind: Kind = "date" if column.dates else "number"
        gaps = bool(np.isnan(every[:, place]).any())
        found.append(Column(name=column.name, kind=kind, mean=mean, deviation=deviation, gaps=gaps))
    return (*found, *(_categories(column, clients, least_clients) for column in words))


def matrix(columns: Sequence[Numbers], rows: Places) -> NDArray[np.float64]:
    """Columns of numbers side by side, (rows, columns)."""
    values = [column.values[rows] for column in columns]
    return np.stack(values, axis=1) if values else np.zeros((len(rows), 0))


def _categories(column: ColumnWords, clients: Sequence[Places], least: int) -> Column:
    """The categories in order of their names, missing values last."""
    sizes = [len(rows) for rows in clients]
    owners = np.repeat(np.arange(len(clients)), sizes)
    codes = column.codes[np.concatenate(clients)]
    pairs = np.unique(np.stack([codes, owners]), axis=1)
    present, holders = np.unique(pairs[0], return_counts=True)
    kept = [None if c < 0 else column.words[c] for c in present[holders >= least]]
    known = tuple(sorted(kept, key=lambda category: (category is None, category or "")))
    others = bool((holders < least).any())
    return Column(name=column.name, kind="category", known=known, others=others)
