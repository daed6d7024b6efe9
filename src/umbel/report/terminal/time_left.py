"""Estimate of the time of the remaining rounds from the finished ones."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

RECENT = 20
"""Number of latest rounds used for the estimate."""

FEWEST = 3
"""Number of finished rounds before the first estimate."""


def time_left(ends: Sequence[float], rounds: int) -> str:
    """Estimate how long the remaining rounds take; "" if too few have ended to tell.

    Time before the end of the first round is ignored, as it includes starting up. The estimate is
    the mean of recent rounds without the slowest and the fastest tenth, so that a single delayed
    round does not distort it; rounds with an evaluation are included.
    """
    recent = ends[-RECENT - 1 :]
    spans = sorted(after - before for before, after in pairwise(recent))
    if rounds < 1 or len(spans) < FEWEST:
        return ""
    cut = -(-len(spans) // 10)
    kept = spans[cut : len(spans) - cut]
    return f"{in_units(rounds * sum(kept) / len(kept))} left"


def in_units(seconds: float) -> str:
    """A time in a suitable unit."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"
