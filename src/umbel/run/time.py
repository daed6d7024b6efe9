"""Time in a run: which step a round belongs to, and what its clients still have of the past."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umbel.checks import check, check_least
from umbel.client.work import DURING
from umbel.data.federation import Federation
from umbel.data.schedules import NAMES
from umbel.data.splits import Split
from umbel.engines.storage import sizes_asked
from umbel.flow import Engine, Flow, Layer, Replies, Request, Rows, ask
from umbel.run.participation import Weighted
from umbel.run.start import NumRounds, total
from umbel.settings import Settings
from umbel.summary import in_short


@dataclass(frozen=True)
class Time(Settings):
    """How a run goes through the steps of a federation with time.

    >>> umbel.Time(rounds=5, keep="window", window=2).rounds
    5

    Each step has `rounds` rounds, in which clients train on what they keep of its examples and of
    earlier ones. Models are tested on the examples of the next step, which nobody has trained on.
    Raises `UsageError` for values out of range.
    """

    path_settings: ClassVar[frozenset[str]] = frozenset({"schedule"})
    no_paths: ClassVar[frozenset[str]] = frozenset(NAMES)

    rounds: int = 10  #: rounds in each step
    #: examples that clients train on: of all steps so far, of the last `window` steps, or of all,
    #: with a share of each that falls with its age
    keep: Literal["all", "window", "decay"] = "all"
    window: int = 1  #: number of steps in a window, the present one included
    decay: float = 0.5  #: share of its examples that a step keeps from one step to the next
    steps: int | None = None  #: number of steps to train in; None: those that the data have
    #: what a scenario plants: the name of a schedule, or a file with a row for each step, and a
    #: client's concept in each column
    schedule: str = ""
    concepts: tuple[tuple[int, ...], ...] = ()  #: the rows themselves, instead of a schedule

    def __post_init__(self) -> None:
        check_least(self, 1, "rounds", "window", "steps")
        once = not (self.schedule and self.concepts)
        check(once, "concepts", "given", f"left out, as schedule = {self.schedule!r} is given")
        check(0 < self.decay < 1, "decay", self.decay, "in (0, 1)")

    def step(self, number: int) -> int:
        """The step of a round."""
        return number // self.rounds

    def shares(self, step: int, num_steps: int) -> Tensor:
        """(T,) the share of each step's examples that clients train on at a step."""
        age = step - torch.arange(num_steps + 1, dtype=torch.double)
        past = age >= 0
        if self.keep == "window":
            past &= age < self.window
        kept = self.decay**age if self.keep == "decay" else torch.ones_like(age)
        return torch.where(past, kept, 0.0)

    def num_steps(self, federation: Federation) -> int:
        """The number of steps; clients on other machines do not tell it, so that `steps` does."""
        return federation.num_steps or self.steps or 0

    def when(self, federation: Federation, number: int) -> dict[str, Any]:
        """What a context says of the time of a round."""
        first = number % self.rounds == 0
        steps = self.num_steps(federation)
        return {"step": self.step(number), "begins": first, "num_steps": steps}

    def sizes(self, federation: Federation, number: int) -> NDArray[np.int64] | None:
        """(M,) number of examples of each client to train on in a round."""
        train, step = federation.train, self.step(number)
        if train.steps is None:
            return None
        everyone = np.arange(federation.num_clients)
        shares = self.shares(step, self.num_steps(federation)).numpy()
        counts = train.counts(everyone, shares[None].repeat(len(everyone), axis=0))
        total: NDArray[np.int64] = counts.sum(axis=1)
        return total

    def check_with(
        self,
        federation: Federation,
        personal: object,
        participation: object,
        elsewhere: bool,
    ) -> None:
        """Raise `UsageError` for clients that a run with time can't have."""
        expected = "a number, as clients on other machines do not tell how many steps there are"
        check(self.steps is not None or not elsewhere, "time.steps", self.steps, expected)
        expected = "clients with steps: Federation.over_time, or a scenario that [time] is for"
        there = federation.num_steps is not None or elsewhere
        check(there, "time", "clients without steps", expected)
        weighted = isinstance(participation, Weighted) and not participation.weights
        expected = (
            "a list over Flower with time: sites do not tell how many examples they will have"
        )
        check(not (weighted and elsewhere), "participation.weights", (), expected)
        expected = "left out with time: rounds are judged on the examples of the next step"
        apart = federation.validation
        some = apart is not None and bool(apart.sizes.any())
        check(not some, "validation examples", "some", expected)
        check(personal is None, "personal", "given", expected)

    def check_for(self, federation: Federation, num_rounds: NumRounds) -> None:
        """Raise `UsageError` if a run has more rounds than its federation has steps for."""
        steps = self.num_steps(federation)
        most = steps * self.rounds
        expected = f"at most {most}, time.rounds = {self.rounds} in each of {steps} steps"
        check(total(num_rounds) <= most, "rounds", num_rounds, expected)


@dataclass
class InTime(Layer):
    """Has clients see what they keep at this step, and asks none that has nothing of it."""

    engine: Engine
    train: Split  # of the federation
    kept: Tensor  # (1, T) shares of the steps that are trained on
    following: Tensor  # (1, T) all of the next step, for the test

    __repr__ = in_short

    @classmethod
    def at(cls, engine: Engine, federation: Federation, time: Time, step: int) -> InTime:
        """The layer for a step of a federation with time."""
        num_steps = time.num_steps(federation)
        following = torch.zeros(1, num_steps + 1, dtype=torch.double)
        following[0, step + 1] = 1.0
        return cls(engine, federation.train, time.shares(step, num_steps)[None], following)

    def ask(self, request: Request) -> Flow[Replies]:
        training = request.work.split == "train"
        if DURING not in request.each or not training:
            table = self.kept if training else self.following
            rows = Rows(table, torch.zeros(len(request.clients), dtype=torch.long))
            request = replace(request, each={**request.each, DURING: rows})
        if training:
            some = torch.from_numpy(sizes_asked(self.train, request) > 0)
            request = request if bool(some.all()) else request.pick(some.nonzero()[:, 0])
        return (yield from ask(self.engine, request))
