"""Schedules of the learning rate: its factor in each round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import cos, pi

from umbel.checks import check, check_least
from umbel.settings import Settings


@dataclass(frozen=True)
class Schedule(Settings, ABC):
    """The factor of `lr` in each round, counted from 0; `lr_decay` counts in addition."""

    @abstractmethod
    def factor(self, number: int) -> float:
        """The factor of this round, in [0, 1]."""


@dataclass(frozen=True)
class Constant(Schedule):
    """The same learning rate in all rounds."""

    def factor(self, number: int) -> float:  # noqa: ARG002
        return 1.0


@dataclass(frozen=True)
class CosineRestarts(Schedule):
    """Cosine annealing with warm restarts (Loshchilov & Hutter, SGDR, ICLR 2017, eq. 5).

    The rate falls from `lr` along half a cosine, and is `lr` again after each period.

    >>> [round(umbel.CosineRestarts(period=2).factor(n), 2) for n in range(4)]
    [1.0, 0.5, 1.0, 0.5]
    """

    period: int = 50  #: T_0, the rounds of the first period
    growth: int = 1  #: T_mult, how many times as long as the one before each period is
    lowest: float = 0.0  #: the share of `lr` that the rate falls to

    def __post_init__(self) -> None:
        check_least(self, 1, "period", "growth")
        check(0 <= self.lowest <= 1, "lowest", self.lowest, "in [0, 1]")

    def factor(self, number: int) -> float:
        length = self.period
        while self.growth > 1 and number >= length:
            number, length = number - length, length * self.growth
        along = (1 + cos(pi * (number % length) / length)) / 2
        return self.lowest + (1 - self.lowest) * along


@dataclass(frozen=True)
class InverseTime(Schedule):
    """The learning rate divided by 2, 3, 4 and so on, in the rounds after the first `start`.

    Kim et al. 2024, Proposition 1: the rate of round t is lr / max(t - T + 1, 1). The proposition's
    step sizes have `lr` 1 / mu, for mu-strongly convex losses, and T the round in which clustering
    ends, if steps are means over clusters.

    >>> [umbel.InverseTime(start=2).factor(n) for n in range(5)]
    [1.0, 1.0, 1.0, 0.5, 0.3333333333333333]
    """

    start: int = 0  #: T, the last round with the whole rate

    def __post_init__(self) -> None:
        check_least(self, 0, "start")

    def factor(self, number: int) -> float:
        return 1 / max(number - self.start + 1, 1)


SCHEDULES: dict[str, type[Schedule]] = {
    "constant": Constant,
    "cosine-restarts": CosineRestarts,
    "inverse-time": InverseTime,
}
