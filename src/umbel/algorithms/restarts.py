"""Several starts of one method; only the best one continues."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from umbel.algorithms.base import (
    Algorithm,
    Setup,
    State,
    Wrapper,
    check_apart,
)
from umbel.algorithms.watched import Watched
from umbel.checks import check, check_least, check_memory
from umbel.flow import Flow
from umbel.server.ask import Context

MOST_STARTS = 1_000
"""Largest number of starts."""


@dataclass(frozen=True)
class RestartsState(State):
    """`models` holds the models of all rivals, one after another; `labels` are the leader's."""

    states_in: ClassVar[str] = "rivals"

    rivals: tuple[State, ...]

    @property
    def labels_end(self) -> int:
        return max(rival.labels_end for rival in self.rivals)


@dataclass(frozen=True)
class Restarts(Wrapper[State]):
    """Run a method with a random start from several starts, and keep the best one.

    `restarts` sets of models are trained side by side for the first `trial_rounds` rounds, at
    `restarts` times the cost. After that, only one set is trained. `keep` selects it: the set with
    the lowest training loss, if the method reports it, or the set whose smallest cluster is the
    largest. Before losses are compared, sets are left out if more clients than with another set
    have not given a single usable answer, such as clients whose training always diverged.
    """

    asked_by: ClassVar[tuple[str, ...]] = ("restarts",)

    restarts: int = 10  #: number of starts
    trial_rounds: int = 10  #: number of rounds in which all starts are trained
    #: how to select the start that continues
    keep: Literal["lowest-loss", "most-balanced"] = "lowest-loss"

    def __post_init__(self) -> None:
        check(
            1 <= self.restarts <= MOST_STARTS, "restarts", self.restarts, f"in 1 to {MOST_STARTS:,}"
        )
        check_least(self, 1, "trial_rounds")
        twice = isinstance(self.of, Restarts)
        check(not twice, "of", type(self.of).__name__, "another method: give `restarts` only once")
        check_apart(self)
        method = innermost(self.of)
        reports = type(method).fit is not Algorithm.fit
        expected = f'"most-balanced": {type(method).__name__} reports no loss to compare by'
        # `fit` of the base class returns None: such a method has no loss to compare starts by.
        check(reports or self.keep == "most-balanced", "keep", self.keep, expected)

    @property
    def idle(self) -> bool:
        return self.restarts == 1

    def init(self, setup: Setup) -> RestartsState:
        setup.warn_if_shorter(
            self.trial_rounds, "trial_rounds", "goes on with the best start alone"
        )
        first = self.of.init(setup)
        check_memory(self.restarts * _nbytes(first), f"states of {self.restarts:,} restarts")
        # Start r begins with the models r K to (r + 1) K - 1, and start 0 as the method alone
        # would.
        others = [
            self.of.init(setup.restarted(number * len(first.models), number))
            for number in range(1, self.restarts)
        ]
        return _together((first, *others), 0)

    def members(self, state: State, kept: Tensor, setup: Setup) -> State:
        if not isinstance(state, RestartsState):
            return super().members(state, kept, setup)
        rivals = tuple(self.of.members(rival, kept, setup) for rival in state.rivals)
        return _together(rivals, self._leader(state.rivals))

    def admit(self, state: State, ctx: Context) -> Flow[State]:
        if not isinstance(state, RestartsState):
            return (yield from super().admit(state, ctx))
        rivals = []
        for rival in state.rivals:
            placed = yield from self.of.admit(rival, ctx)
            rivals.append(placed)
        return _together(tuple(rivals), self._leader(state.rivals))

    def round(self, state: State, ctx: Context) -> Flow[State]:
        if not isinstance(state, RestartsState):
            after: State = yield from self.of.round(state, ctx)
            return after
        rivals = []
        for rival in state.rivals:
            next_of = yield from self.of.round(rival, ctx)
            rivals.append(next_of)
        leader = self._leader(rivals)
        # After the trial the state is the method's own: rounds and checkpoints are those of one
        # start.
        over = ctx.round + 1 == self.trial_rounds
        return rivals[leader] if over else _together(tuple(rivals), leader)

    def inner(self, state: State) -> State:
        """Return the state of the best start so far."""
        if not isinstance(state, RestartsState):
            return state
        return state.rivals[self._leader(state.rivals)]

    def _leader(self, rivals: Sequence[State]) -> int:
        """The position of the rival that `keep` selects."""
        fits = [self.of.fit(rival) for rival in rivals]
        if self.keep == "lowest-loss":
            table = torch.stack([fit for fit in fits if fit is not None])
            # table (R, M): the loss of each start at each client; NaN where a client never
            # answered.
            silent, means = table.isnan().sum(1), table.nanmean(1).nan_to_num(torch.inf)
            # A start that cannot serve the hardest clients must not gain by having no loss there.
            return int(means.where(silent == silent.min(), torch.inf).argmin())
        # A client that was never asked is in no cluster yet.
        joined = [
            rival.labels if fit is None else rival.labels[~fit.isnan()]
            for rival, fit in zip(rivals, fits, strict=True)
        ]
        # The start whose smallest cluster is the largest; the first of those on a tie.
        sizes = [_smallest(rival, labels) for rival, labels in zip(rivals, joined, strict=True)]
        return sizes.index(max(sizes))


def method_of(algorithm: Algorithm[Any]) -> Algorithm[Any]:
    """The method itself, without `Watched` and `Restarts` around it."""
    return method_of(algorithm.of) if isinstance(algorithm, Watched | Restarts) else algorithm


def innermost(algorithm: Algorithm[Any]) -> Algorithm[Any]:
    """The method itself, without any wrappers around it, such as `Sharing`."""
    of = getattr(algorithm, "of", None)
    return innermost(of) if isinstance(of, Algorithm) else algorithm


def _nbytes(value: object) -> int:
    """The size of the tensors in a state, or in a field of one."""
    if isinstance(value, State):
        return sum(_nbytes(getattr(value, member.name)) for member in fields(value))
    if isinstance(value, tuple):
        return sum(map(_nbytes, value))
    return value.nbytes if isinstance(value, Tensor) else 0


def _smallest(state: State, labels: Tensor) -> int:
    """The size of the smallest cluster, by the labels of the clients that have joined one."""
    sizes = torch.bincount(labels, minlength=len(state.models))
    if state.labels_end != len(state.models):
        # Labels may be numbers of clients: then most of the possible labels name no cluster.
        sizes = sizes[sizes > 0]
    return min(sizes.tolist(), default=0)


def _together(rivals: tuple[State, ...], leader: int) -> RestartsState:
    models = torch.cat([rival.models for rival in rivals])
    return RestartsState(models, rivals[leader].labels, rivals)
