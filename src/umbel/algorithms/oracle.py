"""The oracle, FedAvg within the planted groups: the upper baseline of comparisons."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from umbel.algorithms.base import Algorithm, Setup, State, Traits, federate
from umbel.algorithms.by_batch import check_apart_by_batch, federate_by_batch
from umbel.checks import check
from umbel.client.work import LocalTraining
from umbel.flow import Flow
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context


@dataclass(frozen=True)
class ConceptState(State):
    """The state in a federation with time."""

    concepts: Tensor  # (M, T) the planted concept of each client in each step


@dataclass(frozen=True)
class Oracle(Algorithm[State]):
    """Average within the planted groups, unknown to real servers: an upper baseline.

    In a federation with time, a model of each concept is trained on all examples of the concept, of
    all clients and steps up to now, whatever the run keeps. Clients are served the model of their
    latest examples. A run on a federation without planted groups raises `UsageError` before its
    first round.
    """

    traits: ClassVar[Traits] = Traits(needs_groups=True)

    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged

    def init(self, setup: Setup) -> State:
        planted = setup.groups is not None
        check(
            planted, "scenario", "no planted groups", "one with planted groups, as the oracle needs"
        )
        assert setup.groups is not None
        if setup.concepts is not None:
            check_apart_by_batch(self.averaging)
            models = setup.copies(int(setup.concepts.max()) + 1)
            return ConceptState(models, setup.concepts[:, 0], concepts=setup.concepts)
        return State(setup.copies(int(setup.groups.max()) + 1), setup.groups)

    def members(self, state: State, kept: Tensor, setup: Setup) -> State:  # noqa: ARG002
        # The numbers of groups stay; a group that nobody was in before gets a model.
        now = self.init(setup)
        more = now.models[len(state.models) :]
        moments = () if len(more) else state.moments
        return replace(now, models=torch.cat([state.models, more]), moments=moments)

    def round(self, state: State, ctx: Context) -> Flow[State]:
        if not isinstance(state, ConceptState):
            return (yield from federate(state, ctx, self.local, self.averaging))
        now = replace(state, labels=state.concepts[:, ctx.step])
        past = torch.arange(state.concepts.shape[1]) <= ctx.step
        owners = torch.where(past, state.concepts, -1)
        return (yield from federate_by_batch(now, owners, ctx, self.local, self.averaging))
