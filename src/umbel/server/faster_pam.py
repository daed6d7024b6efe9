"""FasterPAM: Schubert & Rousseeuw, Fast and eager k-medoids clustering: O(k) runtime improvement of
the PAM, CLARA, and CLARANS algorithms, Information Systems 101, 2021."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

BLOCK_VALUES = 2**15
"""Number of distances that are looked at together: few, as threads for more cost time."""

ROUNDING = 1e-12
"""A loss that falls by less than this share only differs by rounding errors."""


def faster_pam(
    distance: NDArray[Any], medoids: NDArray[np.int64], weights: NDArray[np.int64]
) -> tuple[float, NDArray[np.int64], NDArray[np.int64]]:
    """The loss, the medoids (K,), and the position (N,) of each row's nearest medoid among them.

    distance (N, N) is symmetric, and weights (N,) say how often each row counts. The loss is the
    weighted sum of distances to the nearest medoids. From the given medoids, one is swapped for
    another row as soon as that lowers the loss, until no such swap is left. The paper looks at one
    row at a time; here the best of a block of rows is taken.
    """
    size = len(distance)
    rows = max(1, BLOCK_VALUES // size)
    blocks = [np.arange(start, min(start + rows, size)) for start in range(0, size, rows)]
    nearest, first, second = _nearest_two(distance, medoids)
    loss = float(weights @ first)
    idle = at = 0
    # Ends when no block has had a swap that lowers the loss since the last swap.
    while idle < len(blocks):
        block, at = blocks[at], (at + 1) % len(blocks)
        change = _changes(distance[block], nearest, first, second, weights, len(medoids))
        row, leaving = divmod(int(change.argmin()), len(medoids))
        swapped = medoids.copy()
        swapped[leaving] = block[row]
        after = _nearest_two(distance, swapped)
        if float(weights @ after[1]) < (1 - ROUNDING) * loss:
            medoids, (nearest, first, second), idle = swapped, after, 0
            loss = float(weights @ first)
        else:
            idle += 1
    return loss, medoids, nearest


def first_medoids(
    distance: NDArray[Any], num_medoids: int, count: int, rng: np.random.Generator
) -> list[NDArray[np.int64]]:
    """Return `count` sets of medoids (K,) to start from, of rows that all differ.

    Every other set is random; in the rest each medoid is drawn in proportion to its distance from
    those before it, as k-means++ does by squares. Groups that are small need the second, and
    neither is the better in general.
    """
    starts = [rng.choice(len(distance), num_medoids, replace=False) for _ in range(count)]
    for start in starts[1::2]:
        near = distance[start[0]].copy()
        for place in range(1, num_medoids):
            start[place] = rng.choice(len(distance), p=near / near.sum())
            near = np.minimum(near, distance[start[place]])
    return starts


def _nearest_two(
    distance: NDArray[Any], medoids: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """The nearest medoid of each row, and its distances to this and the second nearest one.

    A medoid is nearest to itself. A single medoid has no second: that distance is infinite.
    """
    apart = distance[medoids].astype(np.float64)  # (K, N)
    apart[np.arange(len(medoids)), medoids] = -1
    nearest = apart.argmin(0)
    every = np.arange(apart.shape[1])
    first = apart[nearest, every].clip(0)
    # Without its nearest medoid, the smallest distance left is to the second nearest.
    apart[nearest, every] = np.inf
    return nearest, first, apart.min(0)


def _changes(
    to_rows: NDArray[Any],
    nearest: NDArray[np.int64],
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    weights: NDArray[np.int64],
    num_medoids: int,
) -> NDArray[np.float64]:
    """Return the changes (B, K) of the loss if each of these rows takes each medoid's place.

    Rows that are nearer to the new medoid go to it, whichever medoid leaves: one sum for all K.
    Those whose medoid leaves go to the new one, or to their second nearest: a sum over its cluster.
    """
    # member (N, K): the row's weight in the column of its medoid, 0 elsewhere.
    member = np.zeros((len(nearest), num_medoids))
    member[np.arange(len(nearest)), nearest] = weights
    # joining (B,) = sum_n w_n (min(d(b, n), first_n) - first_n), whichever medoid leaves
    joined = np.minimum(to_rows, first, dtype=np.float64)
    joining = joined @ weights.astype(np.float64) - first @ weights
    # leaving (B, K) = sum over n of cluster k of w_n (max(min(d(b, n), second_n), first_n) -
    # first_n): the part that `joining` has counted already is not counted again.
    moved = np.minimum(to_rows, second, dtype=np.float64)
    leaving = np.maximum(moved, first, out=moved) @ member - first @ member
    changes: NDArray[np.float64] = joining[:, None] + leaving
    return changes
