"""Settings and accounting of each client's differential privacy against the server."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType

from umbel.checks import check
from umbel.settings import Settings

NONE: Mapping[float, int] = MappingProxyType({})


@dataclass(frozen=True)
class Privacy(Settings):
    """Clients clip their updates and add Gaussian noise before sending; neither without `clip`.

    An update is scaled down to the norm `clip` at most, and noise of standard deviation
    `noise_multiplier * clip` is added to each of its values. Whatever the client's examples are,
    two clipped updates differ by at most `2 clip`. This is the sensitivity for which (epsilon,
    delta) is computed: it limits how well the server, and anyone who gets its results, can tell one
    set of examples from another. Raises `UsageError` for values out of range, and for settings that
    have no effect without `clip`.
    """

    #: largest L2 norm of an update; longer ones are scaled down; None: no clipping and no noise
    clip: float | None = None
    noise_multiplier: float = 1.0  #: standard deviation of the noise, in units of `clip`
    delta: float = 1e-5  #: the delta for which epsilon is given
    #: over Flower, a node refuses updates that would exceed this epsilon of a client; None: no
    #: limit
    max_epsilon: float | None = None

    def __post_init__(self) -> None:
        clip, most = self.clip, self.max_epsilon
        check(clip is None or clip > 0, "clip", clip, "more than 0")
        check(self.noise_multiplier > 0, "noise_multiplier", self.noise_multiplier, "more than 0")
        check(0 < self.delta < 1, "delta", self.delta, "in (0, 1)")
        check(most is None or most > 0, "max_epsilon", most, "more than 0")
        for name in ("noise_multiplier", "delta", "max_epsilon"):
            value, without = getattr(self, name), getattr(type(self), name)
            expected = "used without clip: set clip, too, because noise is in units of clip"
            check(clip is not None or value == without, name, value, expected)

    def drowned(self, num_values: int, clients: int, length: float | None = None) -> str | None:
        """A warning if noise drowns updates of this length after clipping, else None.

        The mean of the updates of N clients has noise of standard deviation
        `noise_multiplier * clip / sqrt(N)` on each of its P values: a vector of length
        `noise_multiplier * clip * sqrt(P / N)`. Without `length` it is compared with `clip`, which
        no update exceeds. Where there are several clusters, each has fewer clients and more noise.
        """
        if self.clip is None:
            return None
        noise = self.noise_multiplier * self.clip * math.sqrt(num_values / clients)
        if noise <= (self.clip if length is None else length):
            return None
        long = f"at most {self.clip:g}" if length is None else f"{length:.3g} (median)"
        return (
            f"privacy: the length of the noise in a mean of {clients} updates is {noise:.3g}, that "
            f"of a clipped update {long}: little can be learned. Ask more clients in a round, or "
            "take a model with fewer values, less noise, or a clip as short as the updates"
        )

    def epsilon(self, releases: int, others: Mapping[float, int] = NONE) -> float:
        """Return the epsilon at `delta` of a client that released this many updates.

        `others` are numbers of its updates with other noise, by the multiplier of that. Gaussian
        mechanisms together are one Gaussian mechanism, whose epsilon is exact: Balle & Wang 2018,
        Theorem 8.
        """
        counts = Counter({self.noise_multiplier: releases}) + Counter(others)
        return _epsilon(tuple(sorted(counts.items())), self.delta) if counts else 0.0


LARGEST_DISTANCE = 1e150
"""Distances of which the square, about twice the epsilon, is a number of double precision."""


@cache
def _epsilon(releases: tuple[tuple[float, int], ...], delta: float) -> float:
    """The epsilon of releases, given as pairs of a noise multiplier and a number of updates."""
    from scipy.optimize import brentq

    # Distance of two updates, in standard deviations of the noise, over all releases.
    # A release moves by 2 clip at most, with noise sigma clip: n releases are 2 sqrt(n) / sigma
    # apart, and those with different noise add up like the sides of a right-angled box.
    apart = math.hypot(*(2 * math.sqrt(count) / noise for noise, count in releases))
    if apart == 0 or apart > LARGEST_DISTANCE:
        return 0.0 if apart == 0 else math.inf

    def beyond(epsilon: float) -> float:
        return _log_delta(epsilon, apart) - math.log(delta)

    if beyond(0.0) <= 0:
        return 0.0
    # delta falls as epsilon grows: doubled until the root is between 0 and `most`.
    most = apart**2 / 2 + apart
    while beyond(most) > 0:
        most *= 2
    found = float(brentq(beyond, 0.0, most, xtol=1e-12 * most, rtol=1e-12))
    return found * (1 + 1e-9)  # rather a little more than a little less


def _log_delta(epsilon: float, apart: float) -> float:
    """The logarithm of the smallest delta for which (epsilon, delta) holds."""
    from scipy.special import log_ndtr

    # Theorem 8 with mu = apart: delta = Phi(mu/2 - eps/mu) - exp(eps) Phi(-mu/2 - eps/mu), in logs,
    # as both terms may be far below the smallest number.
    one = float(log_ndtr(apart / 2 - epsilon / apart))
    other = epsilon + float(log_ndtr(-apart / 2 - epsilon / apart))
    # Much noise leaves a difference below rounding: rather a larger delta than a smaller one.
    difference = min(other - one, 0.0) - 4 * math.ulp(one)
    return one + math.log(-math.expm1(difference))
