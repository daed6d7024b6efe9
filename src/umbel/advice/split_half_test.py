"""Tests whether clients differ: whether the halves of a client's examples are unusually alike.

If all clients draw from one distribution, examples could be exchanged between clients: the halves
are then no more alike than after a random reassignment of the examples.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from umbel.advice.examples import Floats, Ints
from umbel.summary import in_short

SHUFFLES = 499
"""Number of random reassignments of examples to clients; the smallest p-value is 0.002."""

NULLS = 19
"""Draws of pure noise, whose largest eigenvalue a direction must exceed."""

MARGIN = 1.25
"""Safety factor for that eigenvalue, as the noise is not exactly normal and is only estimated."""

ROWS = 256
"""Number of clients whose distances to all others are held in memory at once."""

ALPHA = 0.01
"""p-values above this are taken for chance."""


@dataclass(frozen=True, kw_only=True)
class Halves:
    """Mean descriptors of the two halves of each client, in units of an example's noise."""

    means: Floats  #: (2, M, D)
    counts: Ints  #: (2, M) examples

    __repr__ = in_short

    def scaled(self) -> Floats:
        """(2, M, D) deviations from the mean of all, with noise of variance 1 in every number."""
        weights = self.counts[..., None]
        centre = (self.means * weights).sum((0, 1)) / self.counts.sum()
        found: Floats = (self.means - centre) * np.sqrt(weights)
        return found

    def seen_from(self, directions: Floats) -> Halves:
        """Return the halves in these directions (D, Q) alone."""
        return Halves(means=self.means @ directions, counts=self.counts)

    def whole(self) -> Floats:
        """(M, D) mean descriptor of all examples of each client."""
        weights = self.counts[..., None]
        found: Floats = (self.means * weights).sum(0) / self.counts.sum(0)[:, None]
        return found


def halves_of(values: Floats, owner: Ints, half: Ints, num_clients: int) -> Halves:
    """Means over the halves of each client of the numbers (N, D) that describe its examples."""
    means = np.zeros((2, num_clients, values.shape[1]))
    counts = np.zeros((2, num_clients), dtype=np.int64)
    np.add.at(means, (half, owner), values)
    np.add.at(counts, (half, owner), 1)
    return Halves(means=means / np.maximum(counts, 1)[..., None], counts=counts)


def whitened(values: Floats, owner: Ints, num_clients: int) -> Floats:
    """The numbers (N, D) in units of what varies within clients, without correlations."""
    from sklearn.covariance import ledoit_wolf

    sums, counts = np.zeros((num_clients, values.shape[1])), np.bincount(owner)
    np.add.at(sums, owner, values)
    within = values - (sums / counts[:, None])[owner]
    freedom = len(values) / max(1, len(values) - num_clients)
    scale = np.maximum(within.std(0), 1e-9)
    variance, axes = np.linalg.eigh(ledoit_wolf(within / scale)[0] * freedom)
    centred = (values - values.mean(0)) / scale
    found: Floats = centred @ axes / np.sqrt(np.maximum(variance, 1e-12))
    return found


@dataclass(frozen=True, kw_only=True)
class Chance:
    """p-values of the hypothesis that clients do not differ, by permutation."""

    alike: float  #: p-value of how alike the halves of clients are, in all directions together
    strongest: float  #: p-value of how alike they are in the direction where they are most alike


def by_chance(
    values: Floats,
    owner: Ints,
    half: Ints,
    num_clients: int,
    rng: np.random.Generator,
    shuffles: int = SHUFFLES,
) -> Chance:
    """Compare the halves of clients with those of examples that are dealt to clients anew.

    What is compared are the sum over clients of the inner products of their halves, and the largest
    eigenvalue of the halves' cross products. Examples keep their half, as the numbers (N, D) of
    one may have been made with the other. They are put in units of what varies in all, which are
    the same however they are dealt.
    """
    white = whitened(values, np.zeros_like(owner), 1)
    found = halves_of(white, owner, half, num_clients)
    # Sums that are equal but for their order may differ in the last bits.
    least = np.array(_likeness(found)) - 1e-9 * (found.scaled() ** 2).sum()
    dealt = (_dealt(white, half, found.counts, rng) for _ in range(shuffles))
    shuffled = np.array([_likeness(each) for each in dealt])
    alike, strongest = (1 + (shuffled >= least).sum(0)) / (1 + shuffles)
    return Chance(alike=float(alike), strongest=float(strongest))


def _dealt(values: Floats, half: Ints, counts: Ints, rng: np.random.Generator) -> Halves:
    """Halves of as many examples (2, M), dealt to clients at random."""
    from scipy.sparse import csr_array

    means = []
    for side in (0, 1):
        mine, ends = values[half == side], np.concatenate([[0], counts[side].cumsum()])
        members = csr_array((np.ones(len(mine)), rng.permutation(len(mine)), ends))
        means.append(members @ mine / np.maximum(counts[side], 1)[:, None])
    return Halves(means=np.stack(means), counts=counts)


def _likeness(halves: Halves) -> tuple[float, float]:
    first, second = halves.scaled()
    return float((first * second).sum()), float(_eigen(first, second)[0][-1])


def nearness(halves: Halves) -> float:
    """Share of pairs in which a client's other half is nearer than another's; 0.5 by chance."""
    first, second = halves.scaled()
    clients, lengths = len(first), (second**2).sum(1)
    nearer, ties = 0, -clients  # each client ties with itself
    for start in range(0, clients, ROWS):
        block = first[start : start + ROWS]
        distances = (block**2).sum(1)[:, None] + lengths - 2 * block @ second.T
        own = distances.diagonal(start)[:, None]
        nearer += int(np.count_nonzero(own < distances))
        ties += int(np.count_nonzero(own == distances))
    return (nearer + 0.5 * ties) / (clients * (clients - 1)) if clients > 1 else 0.5


def directions(halves: Halves, rng: np.random.Generator) -> Floats:
    """(D, Q) directions in which clients differ beyond noise, the strongest first; Q may be 0.

    The halves of a client share its mean but not their noise. With noise alone, no eigenvalue of
    the halves' cross products exceeds those of random numbers.
    """
    first, second = halves.scaled()
    values, axes = _eigen(first, second)
    noise = [_eigen(*rng.normal(size=(2, *first.shape)))[0][-1] for _ in range(NULLS)]
    kept: Floats = axes[:, ::-1][:, : int((values > MARGIN * max(noise)).sum())]
    return kept


def _eigen(first: Floats, second: Floats) -> tuple[Floats, Floats]:
    """Eigenvalues, smallest first, and eigenvectors of the symmetric cross products."""
    product = first.T @ second
    values, axes = np.linalg.eigh(product + product.T)
    return values, axes
