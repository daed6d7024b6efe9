"""Division of examples among clients: sizes of clients, and draws without replacement."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError, check

Labels: TypeAlias = NDArray[np.int64]

MAX_DRAWS = 1000


def equal_groups(total: int, number: int) -> Labels:
    """Sizes (number,) of nearly equal groups; the first ones may be larger by one."""
    return apportioned(total, (1.0,) * number)


def apportioned(total: int, shares: Sequence[float] | Labels) -> Labels:
    """Integers with this sum, proportional to the shares, by the largest-remainder method."""
    check(total < 2**53, "clients", total, "few enough to be counted")
    exact = total * np.asarray(shares, dtype=float) / np.sum(shares)
    counts = np.floor(exact).astype(np.int64)
    counts[np.argsort(counts - exact, kind="stable")[: total - counts.sum()]] += 1
    return counts


def client_sizes(
    examples: Sequence[int], allowed: NDArray[np.bool_], y: Labels, rng: np.random.Generator
) -> NDArray[np.int64]:
    """(M,) sizes: n each for (n,), random for (low, high); for () the largest equal size.

    y (n,) are the labels of all examples, allowed (M, C) the labels that each client may hold.
    Random sizes are uniform, with both ends included. They are drawn again until there are enough
    examples for the clients that hold the same labels.
    """
    # Sets of clients (M,), each with its number of shared examples: all, then by labels held.
    counts = np.bincount(y, minlength=allowed.shape[1])
    sets = [allowed.any(0), *np.unique(allowed, axis=0)]
    pools = [(~(allowed & ~labels).any(1), int(counts[labels].sum())) for labels in sets]
    num_clients = len(allowed)
    for clients, number in pools:
        check_few(int(clients.sum()), number)
    equal = min(number // int(clients.sum()) for clients, number in pools)
    low, high = (examples[0], examples[-1]) if examples else (equal, equal)
    check(low >= 1, "examples", low, "1 or more")
    for clients, number in pools:
        expected = f"few enough: {clients.sum()} clients share {number} examples"
        check(low * int(clients.sum()) <= number, "examples", low, expected)
    overflows = [0] * len(pools)
    for _ in range(MAX_DRAWS):
        sizes = rng.integers(low, high, num_clients, endpoint=True)
        fits = [sizes[clients].sum(dtype=float) <= number for clients, number in pools]
        if all(fits):
            return sizes
        overflows = [count + (not fit) for count, fit in zip(overflows, fits, strict=True)]
    clients, number = pools[int(np.argmax(overflows))]
    raise UsageError(
        f"examples: [{low}, {high}] for each of {clients.sum()} clients nearly always takes more "
        f"than the {number} available examples; lower the upper end"
    )


def check_few(num_clients: int, available: int) -> None:
    """Raise `UsageError` unless there is an example for every client."""
    expected = f"few enough: they share {available} examples"
    check(num_clients <= available, "clients", num_clients, expected)


def draw(
    y: Labels,
    sizes: Labels,
    allowed: NDArray[np.bool_],
    rng: np.random.Generator,
    label_alpha: float | None = None,
) -> list[Labels]:
    """Rows of each client, drawn without replacement among the labels that it may hold.

    y (n,) are the labels of all examples, allowed (M, C) the labels that each client may hold. A
    client draws uniformly from the remaining examples, or with `label_alpha` in label proportions
    from a Dirichlet distribution; if a label runs out, it draws more of the others. Raises
    `UsageError` when too few examples of its labels remain.
    """
    num_classes = allowed.shape[1]
    pools = [rng.permutation(np.flatnonzero(y == label)) for label in range(num_classes)]
    rows: list[Labels] = []
    for client, size in enumerate(sizes):
        left = np.array([len(pool) for pool in pools]) * allowed[client]
        if left.sum() < size:
            raise UsageError(
                f"examples: client {client} should get {size}, but only {left.sum()} examples "
                f"with labels that it may hold are left; lower the sizes or the number of clients"
            )
        if label_alpha is None:
            counts = rng.multivariate_hypergeometric(left, size)
        else:
            counts = _in_proportion(left, size, rng.dirichlet([label_alpha] * num_classes), rng)
        mine = [pool[:count] for pool, count in zip(pools, counts, strict=True)]
        pools = [pool[count:] for pool, count in zip(pools, counts, strict=True)]
        rows.append(rng.permutation(np.concatenate(mine)))
    return rows


def deal_alike(pools: Sequence[Labels], counts: Labels) -> list[Labels]:
    """Rows of each client, from a pool for each label, in the label proportions of its counts.

    counts (M, C) are the numbers of examples that each client holds already; every label is held by
    some client. The number of rows is as large as the scarcest label allows, and each label's rows
    are divided in proportion to the counts.
    """
    held = counts.sum(axis=0)
    scarcest = min(range(len(held)), key=lambda label: len(pools[label]) / held[label])
    num_each = held * len(pools[scarcest]) // held[scarcest]
    rows: list[list[Labels]] = [[] for _ in counts]
    for label, pool in enumerate(pools):
        dealt = apportioned(num_each[label], counts[:, label])
        pieces = np.split(pool[: num_each[label]], np.cumsum(dealt)[:-1])
        for mine, piece in zip(rows, pieces, strict=True):
            mine.append(piece)
    return [np.concatenate(mine) for mine in rows]


def _in_proportion(
    left: Labels, size: int, proportions: NDArray[np.float64], rng: np.random.Generator
) -> Labels:
    """Number of draws of each label, in these proportions as far as enough examples remain."""
    counts = np.zeros_like(left)
    while counts.sum() < size:
        weights = np.where(counts < left, proportions, 0.0)
        if not weights.sum():  # no preferred examples remain: draw from the rest
            weights = (left - counts).astype(float)
        more = rng.multinomial(size - counts.sum(), weights / weights.sum())
        counts = np.minimum(counts + more, left)
    return counts
