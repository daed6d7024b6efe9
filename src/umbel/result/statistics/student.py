"""The t interval of a mean over seeds and clients.

Each part of the variance has its own degrees of freedom and the width that it would have by itself;
these widths add up as standard errors do (Howe 1974). Joint degrees of freedom (Satterthwaite 1946)
make it too narrow where there are two seeds and many clients.
"""

from __future__ import annotations

from math import sqrt

from umbel.result.statistics.crossed import LEVEL, Crossed, Ends, Spread

LEAST_DOUBT = -12.0
"""Decimal logarithm of the smallest p-value that is told from zero."""


def by_t(gains: Crossed, whole: Spread) -> Ends:
    """The interval of gains whose spread is known."""
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
    """How far from the mean an interval reaches that misses this share."""
    from scipy.special import stdtrit

    seeds, clients, single = (
        float(stdtrit(max(1, number - 1), doubt / 2))
        for number in (gains.num_seeds, gains.num_clients, gains.num_gains)
    )
    both = seeds**2 * float(whole.seeds[0]) + clients**2 * float(whole.lasting[0])
    # The means of a few seeds may agree by chance, and those of clients, too.
    within = max(clients**2 * float(whole.clients[0]), single**2 * float(whole.single[0]))
    return sqrt(max(both, within))
