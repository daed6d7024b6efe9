"""Local-only training, "NoFed": every client by itself. The floor of every comparison."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch

from umbel.algorithms.base import Algorithm, Setup, State
from umbel.checks import check_memory
from umbel.client.work import LocalTraining
from umbel.flow import Flow, Rows
from umbel.server.ask import Context, train


@dataclass(frozen=True)
class LocalOnly(Algorithm[State]):
    """Train every client by itself: the floor of a comparison, with nothing averaged.

    Rounds, cohorts and local epochs are those of the other methods.
    """

    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train

    @property
    def weighs(self) -> bool:
        return False

    def init(self, setup: Setup) -> State:
        everyone, models = torch.arange(setup.num_clients), setup.new_models(1)
        check_memory(setup.num_clients * models.nbytes, f"models of {setup.num_clients:,} clients")
        return State(models.repeat(setup.num_clients, 1), everyone)

    def round(self, state: State, ctx: Context) -> Flow[State]:
        trained = yield from train(Rows(state.models, ctx.cohort), ctx, self.local)
        return replace(state, models=state.models.index_add(0, trained.clients, trained.update))
