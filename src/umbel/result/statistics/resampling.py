"""A paired bootstrap over seeds and clients.

Seeds and clients are drawn anew, each with replacement, and apart from one another: a client that
is the same under all seeds stays the same (Owen 2007). Each sample's mean is divided by its own
standard error (the bootstrap-t of Efron & Tibshirani 1993, 12.5), without which the intervals of
few clients come out too narrow. Drawing clients anew within each seed would take those of
all seeds for independent, and tell methods apart that are equal.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from umbel.result.statistics.crossed import LEVEL, Crossed, Ends, Floats, Spread, spread

SEED = 0
"""Seed of the draws: the same gains have the same interval, whenever it is asked for."""

MOST, LEAST, CELLS = 9_999, 2_499, 2**22
"""Most and fewest samples; in between, all samples together have this many clients."""

AT_ONCE = 2**21
"""Largest number of a block of samples' clients that is held in memory."""

LEAST_ERROR = 0.25
"""Smallest standard error of a sample as a share of that of the data.

A sample may hold the same client again and again, and a standard error of zero."""


TIED = 1e-9
"""Distances nearer than this share of the larger one differ by rounding errors: they are equal."""


def by_bootstrap(gains: Crossed, whole: Spread, samples: int = MOST) -> Ends:
    """Compute the interval of gains whose mean has a standard error above zero.

    Samples as far as zero are beyond it. Where no sample lies beyond, the p-value is 0: it is
    smaller than samples can tell.
    """
    mean, error = float(whole.mean[0]), float(whole.error[0])
    distances = np.sort(np.concatenate([*_distances(gains, mean, error, samples)]))
    low, high = np.quantile(distances, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    # Gains of accuracy are often multiples of one example: many samples are as far as zero.
    zero = mean / error
    tied = TIED * max(1.0, abs(zero))
    below = int(np.searchsorted(distances, zero + tied, side="right"))
    above = len(distances) - int(np.searchsorted(distances, zero - tied, side="left"))
    beyond = min(below, above)
    p_value = min(1.0, 2 * (beyond + 1) / (len(distances) + 1)) if beyond else 0.0
    return Ends(mean - float(high) * error, mean - float(low) * error, p_value)


def _distances(gains: Crossed, mean: float, error: float, samples: int) -> Iterator[Floats]:
    """Return distances of the samples' means from the data's, in their standard errors."""
    rng = np.random.default_rng(SEED)
    left = min(samples, max(LEAST, CELLS // gains.num_clients))
    while left > 0:
        count = min(left, max(1, AT_ONCE // gains.num_clients))
        seeds = _several(rng, count, gains.num_seeds)
        clients = _drawn(rng, count, gains.num_clients)
        sample = spread(gains, seeds, clients)
        yield (sample.mean - mean) / np.maximum(sample.error, LEAST_ERROR * error)
        left -= count


def _several(rng: np.random.Generator, samples: int, size: int) -> Floats:
    """Draw samples of seeds with at least two different ones: one shows no variation."""
    drawn = _drawn(rng, samples, size)
    alone = np.flatnonzero(drawn.max(1) == size) if size > 1 else np.zeros(0, np.int64)
    while len(alone):
        drawn[alone] = _drawn(rng, len(alone), size)
        alone = alone[drawn[alone].max(1) == size]
    return drawn


def _drawn(rng: np.random.Generator, samples: int, size: int) -> Floats:
    """Draw how often each entry is in each sample: (samples, size)."""
    places = rng.integers(size, size=(samples, size)) + size * np.arange(samples)[:, None]
    counts = np.bincount(places.ravel(), minlength=samples * size)
    return counts.reshape(samples, size).astype(np.float64)
