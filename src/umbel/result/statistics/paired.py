"""The gain of one method over another, on the same clients under the same seeds.

The 95% interval takes seeds and clients as drawn by chance, and is the wider of two on each side:
that of a paired bootstrap over both, and a t interval. With two or three seeds, too few for
resampling, a bootstrap alone is too narrow. If a few clients gain much more than others, the t
interval alone is too narrow. `python -m benchmarks.coverage` measures how often each excludes zero
where there is no difference.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, sqrt

import numpy as np

from umbel.result.statistics.crossed import LEVEL, Crossed, Ends, Spread, spread_of
from umbel.result.statistics.fairness import magnitude
from umbel.result.statistics.resampling import MOST, by_bootstrap

LEAST_DOUBT = -12.0
"""Decimal logarithm of the smallest p-value that is distinguished from zero."""


def by_t(gains: Crossed, whole: Spread) -> Ends:
    """Compute the t interval of gains with a known spread.

    Each part of the variance has its own degrees of freedom and the width that it would have by
    itself; these widths add up as standard errors do (Howe 1974). Joint degrees of freedom
    (Satterthwaite 1946) make it too narrow where there are two seeds and many clients.
    """
    from scipy.optimize import brentq

    mean = float(whole.mean[0])
    reach = _reach(gains, whole, 1 - LEVEL)

    def beyond(exponent: float) -> float:
        return _reach(gains, whole, 10**exponent) - abs(mean)

    if beyond(LEAST_DOUBT) < 0:
        exponent = LEAST_DOUBT
    elif beyond(0) >= 0:  # a mean of zero, to rounding
        exponent = 0.0
    else:
        exponent = float(brentq(beyond, LEAST_DOUBT, 0))
    return Ends(mean - reach, mean + reach, 10**exponent)


def _reach(gains: Crossed, whole: Spread, doubt: float) -> float:
    """Return the distance from the mean to the end of an interval that misses this share."""
    from scipy.special import stdtrit

    seeds, clients, single = (
        float(stdtrit(max(1, number - 1), doubt / 2))
        for number in (gains.num_seeds, gains.num_clients, gains.num_gains)
    )
    both = seeds**2 * float(whole.seeds[0]) + clients**2 * float(whole.lasting[0])
    # The means of a few seeds may agree by chance, and those of clients, too.
    within = max(clients**2 * float(whole.clients[0]), single**2 * float(whole.single[0]))
    return sqrt(max(both, within))


FEWEST_PAIRS = 6
"""Fewer pairs have no interval: even if all of them agree in sign, that is chance in one of 16."""

ROUNDING = 1e-9
"""A mean of gains nearer to zero, as a share of the values, is zero; so is a standard error."""


@dataclass(frozen=True, kw_only=True)
class Gain:
    """The gain of a client under a seed."""

    client: str
    seed: int
    value: float  # more accuracy, or less loss
    now: float  # the accuracy or loss that it has
    before: float  # what it is compared with


@dataclass(frozen=True, kw_only=True)
class Interval:
    """A mean gain with its 95% interval, which is infinite if too little is known."""

    mean: float
    low: float
    high: float
    seeds: int
    pairs: int
    p_value: float = 1.0  # of no difference, by itself: not corrected for other comparisons

    @property
    def reversed(self) -> Interval:
        """Return the gain of the other method over this one."""
        return replace(self, mean=-self.mean, low=-self.high, high=-self.low)

    @property
    def sure(self) -> bool:
        """True if the interval excludes zero."""
        return self.low > 0 or self.high < 0

    @property
    def ahead(self) -> bool:
        """True if the gain is above zero, and sure."""
        return self.low > 0

    @property
    def known(self) -> bool:
        """True if there are enough pairs for an interval."""
        return self.low > -inf


def interval(gains: Sequence[Gain], samples: int = MOST) -> Interval:
    """The mean over seeds of the means over clients, at least one, with its interval.

    `samples` bounds the samples of the bootstrap. If all gains are equal, the p-value is that of a
    sign test over clients, because nothing is known of how they vary. Otherwise it is at least that
    of the t interval, which relies on normal gains and may be far below that of a sign test.
    """
    table = _crossed(gains)
    whole = spread_of(table)
    mean = float(whole.mean[0])
    none = ROUNDING * magnitude(each for g in gains for each in (g.value, g.now, g.before))
    mean = 0.0 if abs(mean) <= none else mean
    if len(gains) < FEWEST_PAIRS:
        ends = [Ends(-inf, inf, 1.0)]
    elif whole.error[0] <= none:  # everyone gains the same
        # Other seeds of the same clients add nothing; `FEWEST_PAIRS` pairs are there in any case.
        signs = max(table.num_clients, FEWEST_PAIRS)
        ends = [Ends(mean, mean, 2.0 ** (1 - signs) if mean else 1.0)]
    else:
        ends = [by_t(table, whole), by_bootstrap(table, whole, samples)]
    return Interval(
        mean=mean,
        low=min(each.low for each in ends),
        high=max(each.high for each in ends),
        seeds=table.num_seeds,
        pairs=len(gains),
        p_value=max(each.p_value for each in ends),
    )


def _crossed(gains: Sequence[Gain]) -> Crossed:
    """The gains as a table, without rows or columns of which nothing is known."""
    seeds = {seed: row for row, seed in enumerate(dict.fromkeys(gain.seed for gain in gains))}
    clients = {name: place for place, name in enumerate(dict.fromkeys(g.client for g in gains))}
    values, known = np.zeros((2, len(seeds), len(clients)))
    for gain in gains:
        place = seeds[gain.seed], clients[gain.client]
        values[place], known[place] = gain.value, 1.0
    return Crossed(values, known)
