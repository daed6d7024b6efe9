"""How long the rounds to come will take, told from those that are done."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

RECENT = 20
"""Rounds by which the time left is told."""

FEWEST = 3
"""Rounds before a time left is told."""


def time_left(ends: Sequence[float], rounds: int) -> str:
    """Estimate how long the remaining rounds take; "" if too few have ended to tell.

    What comes before the end of the first round is no part of it: starting up takes its time. Of
    the recent rounds the slowest and the fastest tenth are left out, so that one that was held up
    does not count for all, and the mean of the others holds those in which clients are evaluated.
    """
    recent = ends[-RECENT - 1 :]
    spans = sorted(after - before for before, after in pairwise(recent))
    if rounds < 1 or len(spans) < FEWEST:
        return ""
    cut = -(-len(spans) // 10)
    kept = spans[cut : len(spans) - cut]
    return f"{in_units(rounds * sum(kept) / len(kept))} left"


def in_units(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"
