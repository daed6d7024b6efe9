"""Local-only training, "NoFed", without averaging: the lower baseline of comparisons."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from umbel.algorithms.base import Algorithm, Setup, State, Traits
from umbel.client.work import LocalTraining
from umbel.flow import Flow, Rows
from umbel.server.ask import Context, train


@dataclass(frozen=True)
class LocalOnly(Algorithm[State]):
    """Train every client by itself, without averaging: the lower baseline of a comparison.

    Rounds, cohorts and local epochs are the same as for other methods.
    """

    traits: ClassVar[Traits] = Traits(weighs=None)  # nothing is averaged

    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train

    def init(self, setup: Setup) -> State:
        return State(setup.copies(setup.num_clients), torch.arange(setup.num_clients))

    def members(self, state: State, kept: Tensor, setup: Setup) -> State:
        labels = torch.arange(setup.num_clients)
        return replace(super().members(state, kept, setup), labels=labels)

    def round(self, state: State, ctx: Context) -> Flow[State]:
        trained = yield from train(Rows(state.models, ctx.cohort), ctx, self.local)
        return replace(state, models=state.models.index_add(0, trained.clients, trained.update))
