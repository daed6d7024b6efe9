"""How long a run will take, told from the rounds that are done."""

from __future__ import annotations

from itertools import accumulate

import pytest

from umbel.report.terminal.progress import in_units, time_left


def left(*spans: float, rounds: int = 10) -> str:
    """The time left after a first round that ended at 0 and others that took so many seconds."""
    return time_left(list(accumulate(spans, initial=0.0)), rounds)


def test_nothing_is_told_before_a_few_rounds_are_done() -> None:
    assert time_left([], 10) == time_left([40.0], 10) == left(1, 1) == ""
    assert left(1, 1, 1) == "10 s left"
    assert left(1, 1, 1, rounds=0) == ""


def test_starting_up_does_not_count() -> None:
    assert time_left([500.0, 501.0, 502.0, 503.0], 10) == "10 s left"


def test_a_round_that_was_held_up_does_not_count_for_all() -> None:
    assert left(1, 1, 1, 900, 1, 1) == "10 s left"


def test_rounds_with_an_evaluation_count_as_often_as_they_come() -> None:
    told = left(*[1, 1, 1, 1, 6] * 4, rounds=30)
    assert float(told.split()[0]) == pytest.approx(60, rel=0.25)


def test_only_recent_rounds_count() -> None:
    assert left(*[9.0] * 50, *[1.0] * 20) == "10 s left"


def test_long_times_are_in_minutes_and_hours() -> None:
    assert (in_units(99), in_units(600), in_units(7200)) == ("99 s", "10 min", "2.0 h")
