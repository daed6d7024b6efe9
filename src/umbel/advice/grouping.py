"""The number of groups of clients, and their members, by clients' descriptors.

Clients of a group have one true descriptor, from which theirs differ by noise of a known size: a
mixture of as many normal distributions as there are groups. The number of groups is the one with
the smallest penalised likelihood (Schwarz 1978, the BIC, with a heavier penalty).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from umbel.advice.examples import Floats, Ints
from umbel.advice.split_half_test import Halves
from umbel.server.numbering import in_order_of_appearance
from umbel.summary import in_short

PENALTY = 2.5
"""Penalty for each parameter of the mixture, in units of log(number of clients); 1 in the BIC.

It is larger here because the noise of examples is not exactly normal, which favours too many
groups.
"""

PRIOR = 20
"""Strength of the prior that groups are as noisy as all clients together, in clients."""

MOST_GROUPS = 16

STARTS, STEPS = 20, 2

DIGITS = 6
"""Descriptors equal to this many decimals, relative to the largest, count as one point."""


@dataclass(frozen=True, kw_only=True)
class Grouping:
    """Clients in a number of groups."""

    labels: Ints  #: (M,)
    cost: float  #: penalised likelihood, the lower the better

    __repr__ = in_short

    @property
    def num_groups(self) -> int:
        """K."""
        return int(self.labels.max()) + 1


def groupings(halves: Halves, seed: int) -> tuple[Grouping, ...]:
    """A grouping into each number of groups: 1, 2, ..., while there are two clients for each.

    There are at most as many groups as different descriptors: if each client has only one label,
    many clients have the same descriptor.
    """
    # In units of the noise between the two halves of each client.
    apart = _apart(halves)
    size, width = apart.shape
    noise = (apart.T @ apart + PRIOR * np.eye(width)) / (size + PRIOR)
    halves = halves.seen_from(np.linalg.cholesky(np.linalg.inv(noise)))
    most = max(1, min(MOST_GROUPS, halves.counts.shape[1] // 2, _num_places(halves.whole())))
    return tuple(_grouped(halves, count, seed) for count in range(1, most + 1))


def best(found: Sequence[Grouping]) -> Grouping:
    """The grouping with the lowest cost, the first of equals."""
    return min(found, key=lambda each: each.cost)


def _num_places(where: Floats) -> int:
    """Return the number of rows that differ by more than rounding."""
    scale = np.abs(where).max(initial=0) or 1.0
    return len(np.unique((where / scale).round(DIGITS), axis=0))


def _apart(halves: Halves) -> Floats:
    """(M, Q) differences between the halves of each client, which are noise of variance 1."""
    counts = halves.counts
    weight = np.sqrt(1 / (1 / counts).sum(0))
    found: Floats = (halves.means[0] - halves.means[1]) * weight[:, None]
    return found


def _grouped(halves: Halves, count: int, seed: int) -> Grouping:
    """The clients in this many groups, none of which is empty."""
    from sklearn.cluster import KMeans

    where, sizes = halves.whole(), halves.counts.sum(0).astype(np.float64)
    means = KMeans(count, n_init=STARTS, random_state=seed % 2**32)
    labels = means.fit(where, sample_weight=sizes).labels_.astype(np.int64)
    densities = _densities(halves, where, sizes, labels, count)
    for _ in range(STEPS):
        moved = densities.argmax(1)
        if len(np.unique(moved)) < count:
            break
        labels, densities = moved, _densities(halves, where, sizes, moved, count)
    peak = densities.max(1)
    likelihood = float((peak + np.log(np.exp(densities - peak[:, None]).sum(1))).sum())
    numbers = count * where.shape[1] + count - 1
    cost = -2 * likelihood + PENALTY * numbers * np.log(len(where))
    return Grouping(labels=in_order_of_appearance(labels), cost=cost)


def _densities(halves: Halves, where: Floats, sizes: Floats, labels: Ints, count: int) -> Floats:
    """(M, K) logarithm of how likely each client is in each group, up to a constant of its own."""
    apart, width = _apart(halves), where.shape[1]
    found = np.empty((len(where), count))
    for group in range(count):
        mine = labels == group
        noise = apart[mine].T @ apart[mine] + PRIOR * np.eye(width)
        noise = noise / (mine.sum() + PRIOR)
        gap = where - np.average(where[mine], axis=0, weights=sizes[mine])
        far = np.einsum("mi,ij,mj->m", gap, np.linalg.inv(noise), gap)
        share = np.log(mine.mean())
        found[:, group] = share - 0.5 * sizes * far - 0.5 * np.linalg.slogdet(noise)[1]
    return found
