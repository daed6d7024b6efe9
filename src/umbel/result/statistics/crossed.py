"""Gains by seed and client, their mean, and how far chance may have moved it.

Seeds and clients are both drawn by chance. The variance of the mean is that between seeds, and what
clients that are the same under several seeds add to it (two-way clustering, as Cameron, Gelbach &
Miller 2011). It is no less than the variance that clients alone make, and no less than that of as
many independent gains.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVEL = 0.95
"""Coverage of the intervals."""


@dataclass(frozen=True)
class Crossed:
    """Gains of S seeds and N clients, not all of which need be there under every seed."""

    values: Floats  # (S, N) 0 where there is none
    known: Floats  # (S, N) 1 or 0

    @property
    def num_seeds(self) -> int:
        """S."""
        return len(self.values)

    @property
    def num_clients(self) -> int:
        """N, under any seed."""
        return len(self.values[0])

    @property
    def num_gains(self) -> int:
        """Number of known gains, at most S times N."""
        return int(self.known.sum())


@dataclass(frozen=True)
class Spread:
    """Means of samples, and the variance of each, by what it comes from: (B,) each."""

    mean: Floats
    seeds: Floats  # between seeds; 0 where there is one
    clients: Floats  # between clients; 0 where there is one
    single: Floats  # what it would be if all gains were independent

    @property
    def lasting(self) -> Floats:
        """Variance between clients that lasts over all seeds, beyond that of single gains."""
        return np.maximum(self.clients - self.single, 0.0)

    @property
    def error(self) -> Floats:
        """Standard error of each mean."""
        # The means of a few seeds may agree by chance, and those of clients, too: where one seed
        # gives what another takes, both agree although no two gains are equal.
        within = np.maximum(self.clients, self.single)
        return np.sqrt(np.maximum(self.seeds + self.lasting, within))


@dataclass(frozen=True)
class Ends:
    """A 95% interval, and the doubt at which it would end at zero."""

    low: float
    high: float
    p_value: float


def spread_of(gains: Crossed) -> Spread:
    """The gains themselves as the only sample."""
    return spread(gains, np.ones((1, gains.num_seeds)), np.ones((1, gains.num_clients)))


def spread(gains: Crossed, seeds: Floats, clients: Floats) -> Spread:
    """Samples of gains, in which seed s comes `seeds[b, s]` times, client n `clients[b, n]` times.

    Every seed counts alike, however many clients there are under it; one without any of the clients
    that are drawn does not count.
    """
    sizes = clients @ gains.known.T  # (B, S) gains under each seed
    drawn = np.where(sizes > 0, seeds, 0.0)
    counted = np.maximum(drawn.sum(1, keepdims=True), 1.0)
    weights = drawn / counted / np.maximum(sizes, 1.0)  # (B, S) of one gain under each seed
    once = weights / np.maximum(drawn, 1.0)  # and of each time that the seed was drawn
    # Squares of gains far from zero, taken from one another, would leave rounding errors.
    middle = gains.values.sum() / max(gains.num_gains, 1)
    values = (gains.values - middle) * gains.known
    totals = clients @ values.T  # (B, S)
    mean = (weights * totals).sum(1)
    by_seed = once * (totals - mean[:, None] * sizes)
    by_client = weights @ values - mean[:, None] * (weights @ gains.known)  # (B, N)
    squares = weights * once  # each gain's own weight, squared, as often as its seed was drawn
    parts = squares @ values**2 - 2 * mean[:, None] * (squares @ values)
    parts += mean[:, None] ** 2 * (squares @ gains.known)
    count = (drawn * sizes).sum(1)
    return Spread(
        mean=middle + mean,
        seeds=_corrected((drawn * by_seed**2).sum(1), drawn.sum(1)),
        clients=_corrected((clients * by_client**2).sum(1), clients.sum(1)),
        single=_corrected(np.maximum((clients * parts).sum(1), 0.0), count),
    )


def _corrected(squares: Floats, count: Floats) -> Floats:
    """A sum of squares of as many parts as a variance; 0 of a single part."""
    return np.where(count > 1, squares * count / np.maximum(count - 1, 1.0), 0.0)
