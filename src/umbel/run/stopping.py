"""Stopping a run before its last round: at a goal, or when its time is up."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from math import inf, isfinite, nan
from numbers import Real
from typing import Any

from umbel.checks import UsageError, check, nearest, shown
from umbel.client.objectives import OBJECTIVES, REGRESSION
from umbel.run.records import Record
from umbel.run.rounds import Rounds
from umbel.run.scores import VALIDATION
from umbel.settings import UnfitError, argument, scalar

ACCURACIES = ("accuracy", "worst", "weighted_accuracy")
AGREEMENTS = ("ari", "purity", "nmi")
AT_LEAST, AT_MOST = (*ACCURACIES, *AGREEMENTS), ("loss", "accuracy_std")
"""Measures of a record that can be a goal: those to be at least, and at most, a value."""

LOWER = (*AT_MOST, "log-loss", "perplexity", "mae")
"""Measures for which lower values are better."""

STAGES = ("tuned_", "untuned_", "validation_")
"""Beginnings of the names of measures that are taken at another stage or on other examples."""

COUNTS = ("seed", "round", "missing", "refused")
"""Numbers in a row of a round that are no measures to reach."""

VALIDATED = ("accuracy", "loss")
"""Measures that are taken on validation examples if clients have any."""

SECONDS: Mapping[str, float] = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}

USED_UP = "are used up"
"""End of the reason of a run that its time has ended."""

Until = str | Iterable[str] | Mapping[str, float]
"""Goals as users write them: "accuracy=0.9", a list of these, or {"accuracy": 0.9}."""

GOALS = 'a goal such as "accuracy=0.9", a list of goals, or {"accuracy": 0.9}'
"""The allowed forms of goals, in words for messages."""


@dataclass(frozen=True)
class Stop:
    """After how many rounds a run was stopped, and why."""

    rounds: int
    why: str

    @classmethod
    def from_plain(cls, table: Mapping[str, Any]) -> Stop:
        """Read what `asdict` has written."""
        return cls(int(table["rounds"]), str(table["why"]))


@dataclass(frozen=True)
class Budget:
    """Stops a run after the first round that reaches a goal or ends after `max_seconds`.

    If clients have validation examples, accuracy and loss are measured on them.
    """

    until: tuple[tuple[str, float], ...] = ()  # a measure of the record, and its goal
    # counted from the start of this session; a resumed run has the full time again
    max_seconds: float | None = None

    @classmethod
    def of(cls, until: Until = (), max_time: float | str | None = None) -> Budget:
        """Read a user's budget: a goal such as "accuracy=0.9", and "10m" or seconds.

        Raises `UsageError` if these can't be understood or reached.
        """
        goals = tuple((name, _checked(name, value)) for name, value in _pairs(until))
        return cls(goals, None if max_time is None else seconds(max_time))

    @classmethod
    def from_plain(cls, table: Mapping[str, Any]) -> Budget:
        """Read what `plain` has written. Raises `UsageError` as `of` does."""
        goals = tuple((name, _checked(name, value)) for name, value in table["until"])
        time = table["max_seconds"]
        return cls(goals, None if time is None else seconds(time))

    @property
    def plain(self) -> dict[str, Any]:
        """The budget as values of JSON."""
        return asdict(self)

    def check_for(self, run: Rounds) -> None:
        """Raise `UsageError` for a goal that this run never measures."""
        groups = run.divided.groups is not None
        tested = bool(run.divided.test.sizes.sum())
        validated = run.divided.validation is not None
        known = run.net.objective in OBJECTIVES.values()
        for name, goal in self.until:
            # Losses of your own objective may be below 0.
            fine = name != "loss" or goal >= 0 or not known
            check(fine, "until", f"{name}={goal:g}", "0 or more")
            # A regression has no accuracy.
            regression = run.net.objective == REGRESSION and name in (*ACCURACIES, "accuracy_std")
            check(not regression, "until", name, "measured here: a regression has only a loss")
            alone = name in AGREEMENTS and not groups
            check(not alone, "until", name, "measured here: the planted groups are not known")
            # Without test and validation examples, only agreement with planted groups is measured.
            blind = name not in AGREEMENTS and not tested and not validated
            check(not blind, "until", name, "measured here: no client has test examples")
            # With validation examples, test measures come only after the last round: too late to
            # stop by.
            late = validated and name not in (*VALIDATED, *AGREEMENTS)
            how = "rounds are judged on validation examples, by accuracy and loss"
            check(not late, "until", name, f"measured before the end: {how}")

    @property
    def goals(self) -> str:
        """The goals as a user writes them, in one order; empty if there are none."""
        return ", ".join(sorted(f"{name}={exact(goal)}" for name, goal in self.until))

    @property
    def time(self) -> str:
        """The time of a session in seconds, as "600s"; empty if it has no end."""
        return "" if self.max_seconds is None else f"{exact(self.max_seconds)}s"

    def reached(self, record: Record) -> str | None:
        """Return a sentence about the goal that this round reached; None if it reached none."""
        for name, goal in self.until:
            value = record.judged(name)
            if value is not None and reaches(name, value, goal):
                what = name if value == getattr(record, name) else f"validation {name}"
                return f"{what} {value:.4g} is at {'most' if name in AT_MOST else 'least'} {goal:g}"
        return None

    def spent(self, elapsed: float) -> str | None:
        """A sentence if the session's time, in seconds, is up; else None."""
        if self.max_seconds is None or elapsed < self.max_seconds:
            return None
        return f"{elapsed:.4g} s of {self.max_seconds:g} s {USED_UP}"


def exact(value: float) -> str:
    """Return a number as a user writes it, such that it is read back unchanged."""
    short = f"{value:g}"
    return short if float(short) == value and "e" not in short else repr(value)


def seconds(time: float | str) -> float:
    """The seconds of "90", "90s", "10m", "1.5h" or "2d". Raises `UsageError` for anything else."""
    value = _seconds_of_text(time) if isinstance(time, str) else _seconds_of_number(time)
    expected = "a time such as 90s, 10m, 1.5h or 2d, or a number of seconds"
    check(0 < value < inf, "max_time", time, expected)
    return value


def _seconds_of_text(text: str) -> float:
    """Read seconds from a text; NaN if it is not a time."""
    parts = re.fullmatch(r"(\d+(?:\.\d+)?|\.\d+)\s*([smhd]?)", text.strip())
    return nan if parts is None else float(parts[1]) * SECONDS[parts[2]]


def _seconds_of_number(number: Any) -> float:
    """A number as it is, NaN for anything else."""
    try:
        return float(scalar(number, float))
    except UnfitError:
        return nan


def reaches(name: str, value: float, goal: float) -> bool:
    """Return True if a measure is as good as a goal: lower is better for losses and spreads."""
    for beginning in STAGES:
        name = name.removeprefix(beginning)
    return value <= goal if name in LOWER else value >= goal


def first_round(values: Iterable[tuple[int, float | None]], name: str, goal: float) -> int | None:
    """The first round in which a measure reaches a goal; `values` pairs rounds with values."""
    return next(
        (n for n, value in values if value is not None and reaches(name, value, goal)), None
    )


def reachable(rounds: Iterable[Mapping[str, object]]) -> list[str]:
    """The names of the measures that any of these rounds, by name, has a number for; sorted.

    Measures on validation examples are among them by the name that they have on test examples, too.
    """
    known = {name for row in rounds for name, value in row.items() if isinstance(value, Real)}
    return sorted({each for n in known - {*COUNTS} for each in (n, n.removeprefix(VALIDATION))})


def _pairs(until: Any) -> Iterable[tuple[Any, Any]]:
    """Return the measures and goals in a user's value of any type."""
    if isinstance(until, Mapping):
        return until.items()
    several = isinstance(until, Iterable) and not isinstance(until, str | bytes)
    check(isinstance(until, str) or several, "until", until, GOALS)
    return (goal_in(each, "until") for each in (until if several else [until]))


def goal_in(text: Any, what: str, like: str = "accuracy=0.9") -> tuple[str, float]:
    """The measure and the value of a text such as accuracy=0.9. Raises `UsageError` for others."""
    name, _, value = text.partition("=") if isinstance(text, str) else ("", "", "")
    try:
        goal = float(value)
    except ValueError:
        goal = nan
    check(isfinite(goal), what, text, f"of the form {like}")
    return name.strip(), goal


def _checked(name: Any, value: Any) -> float:
    known = (*AT_LEAST, *AT_MOST)
    if name not in known:
        hint = nearest(str(name), known)
        raise UsageError(f"until: {shown(name)} is not a measure to reach; {hint}")
    goal: float = argument(f"until: {name}", value, float)
    # The adjusted Rand index is below 0 for clusters that agree less than random ones.
    low = -1.0 if name == "ari" else 0.0
    # Which losses are possible depends on the objective, and is checked for each run.
    fine = name == "loss" or low <= goal <= 1.0
    check(fine, "until", f"{name}={goal:g}", f"in {low:g} to 1")
    return goal
