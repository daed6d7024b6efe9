"""How much better one method is than another, on the same clients under the same seeds.

The interval is that of a mean for which clients and seeds are both drawn by chance: its variance
is that between seeds, and what clients that are the same under several seeds add to it (two-way
clustering, as Cameron, Gelbach & Miller 2011; degrees of freedom by Satterthwaite 1946); it is no
narrower than the one of clients alone. Three seeds are too few for resampling: its intervals come
out too narrow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, sqrt

import numpy as np
from numpy.typing import NDArray

FEWEST = 6
"""Fewer pairs have no interval: even if all of them agree in sign, that is chance in one of 16."""

LEVEL = 0.95

ROUNDING = 1e-9
"""A mean of gains nearer to zero is zero."""

Groups = Sequence[Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class Gain:
    """How much better a client fares under a seed."""

    client: str
    seed: int
    value: float  # more accuracy, or less loss
    now: float  # the accuracy or loss that it has
    before: float  # what it is compared with


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean gain with its 95% interval, which is endless where too little is known."""

    mean: float
    low: float
    high: float
    seeds: int
    pairs: int

    @property
    def sure(self) -> bool:
        """Whether zero is outside."""
        return self.low > 0 or self.high < 0

    @property
    def ahead(self) -> bool:
        """Whether it is a gain, beyond chance."""
        return self.low > 0

    @property
    def known(self) -> bool:
        """Whether there are pairs enough for an interval."""
        return self.low > -inf


def interval(gains: Sequence[Gain]) -> Interval:
    """The mean over seeds of the means over clients, at least one, with its interval."""
    by_seed = _grouped([gain.seed for gain in gains])
    values = np.array([gain.value for gain in gains])
    seeds, pairs = len(by_seed), len(gains)
    weights = np.zeros(pairs)
    for places in by_seed:
        weights[places] = 1 / (seeds * len(places))
    mean = float(weights @ values)
    mean = 0.0 if abs(mean) < ROUNDING else mean
    if pairs < FEWEST:
        return Interval(mean=mean, low=-inf, high=inf, seeds=seeds, pairs=pairs)
    parts = weights * (values - mean)
    reach = _reach(parts, by_seed, _grouped([gain.client for gain in gains]))
    low, high = mean - reach, mean + reach
    return Interval(mean=mean, low=low, high=high, seeds=seeds, pairs=pairs)


def _reach(parts: NDArray[np.float64], by_seed: Groups, by_client: Groups) -> float:
    """How far the interval reaches from the mean."""
    single = [[place] for place in range(len(parts))]
    if len(by_seed) == 1:
        return _t(len(parts) - 1) * sqrt(_variance(parts, single))
    clients = _variance(parts, by_client) if len(by_client) > 1 else 0.0
    # Clients that are the same under all seeds vary beyond what single results do.
    lasting = max(clients - _variance(parts, single), 0.0)
    seeds = _variance(parts, by_seed)
    terms = seeds**2 / (len(by_seed) - 1) + lasting**2 / max(1, len(by_client) - 1)
    freedom = (seeds + lasting) ** 2 / terms if terms else len(by_seed) - 1
    # The means of a few seeds may agree by chance: no less than what clients vary.
    least = _t(max(1, len(by_client) - 1)) * sqrt(clients)
    return max(_t(freedom) * sqrt(seeds + lasting), least)


def _t(freedom: float) -> float:
    from scipy.stats import t

    return float(t.ppf((1 + LEVEL) / 2, freedom))


def _grouped(keys: Sequence[object]) -> list[list[int]]:
    """The places of each key."""
    places: dict[object, list[int]] = defaultdict(list)
    for place, key in enumerate(keys):
        places[key].append(place)
    return list(places.values())


def _variance(parts: NDArray[np.float64], groups: Groups) -> float:
    """Variance of a sum of these parts, where parts of different groups are independent."""
    sums = [float(parts[list(places)].sum()) for places in groups]
    return len(sums) / (len(sums) - 1) * sum(each**2 for each in sums)
