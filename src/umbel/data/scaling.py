"""Means and deviations of numeric columns, from all values or from sums by client.

Both ignore missing values (NaN), and agree up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umbel.summary import in_short

CONSTANT = 8 * float(np.finfo(np.float64).eps)
"""Values whose difference, relative to the largest, is below this are equal up to rounding."""


@dataclass(frozen=True)
class Scale:
    """The scale of columns: from each its mean is subtracted, then it is divided by its deviation.

    The mean of a column without any value is NaN.
    """

    mean: NDArray[np.float64]  # (F,)
    deviation: NDArray[np.float64]  # (F,) 1 if a column is constant

    __repr__ = in_short

    def __call__(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Scale values (n, F) to mean 0 and deviation 1; missing ones become the mean, 0.

        What is beyond double precision becomes its largest number.
        """
        with np.errstate(over="ignore"):
            return np.nan_to_num((values - self.mean) / self.deviation, nan=0.0)


def pooled(values: NDArray[np.float64]) -> Scale:
    """The scale of values (n, F), computed from all values together."""
    there, powers = np.isfinite(values), _powers([values])
    small = np.ldexp(values, -powers)
    columns = [small[there[:, place], place] for place in range(values.shape[1])]
    means = np.array([column.mean() if len(column) else np.nan for column in columns])
    deviations = np.array([column.std() if len(column) else 0.0 for column in columns])
    deviations = np.where(_constant([small]), 1.0, np.ldexp(deviations, powers))
    return Scale(np.ldexp(means, powers), deviations)


def federated(shards: Sequence[NDArray[np.float64]]) -> Scale:
    """The scale of all clients' values (n_c, F) without seeing them: each client sends sums.

    Clients first send, for each column, the magnitude, the number and the sum of the values, and
    whether all values are equal. From these the server computes the means. Then clients send sums
    of squared distances from the means; in a single pass, these sums would lose digits by
    cancellation.
    """
    powers = _powers(shards)
    shards = [np.ldexp(shard, -powers) for shard in shards]
    counts = sum(np.isfinite(shard).sum(0) for shard in shards)
    totals = sum(np.nansum(shard, axis=0) for shard in shards)
    with np.errstate(invalid="ignore"):  # 0 / 0: a column without values
        means = np.asarray(totals / counts, dtype=np.float64)
        squares = sum(np.nansum((shard - means) ** 2, axis=0) for shard in shards)
        deviations = np.sqrt(squares / counts)
    deviations = np.where(_constant(shards), 1.0, np.ldexp(deviations, powers))
    return Scale(np.ldexp(means, powers), deviations)


def _powers(shards: Sequence[NDArray[np.float64]]) -> NDArray[np.int32]:
    """(F,) powers of two that bound the values of each column.

    Division by them is exact, and afterwards squares of values fit in a float.
    """
    largest = [np.abs(np.where(np.isfinite(s), s, 0)).max(0, initial=0) for s in shards]
    powers: NDArray[np.int32] = np.frexp(np.max(largest, axis=0))[1]
    return powers


def _constant(shards: Sequence[NDArray[np.float64]]) -> NDArray[np.bool_]:
    """(F,) whether a column has at most one distinct value, without rounding errors of a mean.

    A client sends its value only if it has a single one.
    """
    low = np.min([np.where(np.isfinite(s), s, np.inf).min(0, initial=np.inf) for s in shards], 0)
    high = np.max([np.where(np.isfinite(s), s, -np.inf).max(0, initial=-np.inf) for s in shards], 0)
    size = np.maximum(np.abs(low), np.abs(high))
    found: NDArray[np.bool_] = (low > high) | (high - low <= CONSTANT * size)
    return found
