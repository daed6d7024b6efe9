"""pFedMe: Dinh et al., Personalized federated learning with Moreau envelopes, NeurIPS 2020,
Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from umbel.algorithms.base import Algorithm, Served, Setup, State, Traits
from umbel.checks import check
from umbel.client.work import LocalTraining, MeanLoss, MoreauTraining, Work
from umbel.client.work.local_training import check_no_pull
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context, train_personal


@dataclass(frozen=True)
class PFedMeState(State):
    """One global model w; all clients are in its cluster."""

    personal: Tensor  # (M, P) theta_i, the personal model that each client remembers
    has_personal: Tensor  # (M,) bool, False before a client's first round


@dataclass(frozen=True)
class PFedMe(Algorithm[PFedMeState]):
    """Train a personal model for each client, kept near a global model that all clients train.

    Dinh et al. 2020, Algorithm 1. On each mini-batch theta_i takes K steps towards argmin
    f_i(theta) + lambda/2 |theta - w_i|^2, then w_i <- w_i - eta lambda (w_i - theta_i). Server: w
    <- (1 - beta) w + beta mean w_i. eta is the learning rate of `local`, whose mini-batches are the
    R local rounds. Only the cohort trains. In Algorithm 1 all clients train, and only a sample of
    them sends; the global model is the same, but here the other clients keep their last personal
    model. A client never asked uses the global model.
    """

    traits: ClassVar[Traits] = Traits(only_trains=None)

    pull: float = 15.0  #: lambda, the weight of the penalty for distance from the global model
    personal_steps: int = 5  #: K, number of steps on each mini-batch
    personal_lr: float = 0.09  #: learning rate of those steps
    #: step of the server; above 1, the model goes beyond the mean, except for buffers
    beta: float = 1.0
    #: how clients train
    local: LocalTraining = field(default_factory=lambda: LocalTraining(lr=0.005))
    #: how updates are averaged
    averaging: Averaging = field(default_factory=lambda: Averaging("equal"))

    def __post_init__(self) -> None:
        check(self.pull > 0, "pull", self.pull, "more than 0")
        steps = self.personal_steps
        check(1 <= steps <= 1_000_000, "personal_steps", steps, "in 1 to 1,000,000")
        check(self.personal_lr > 0, "personal_lr", self.personal_lr, "more than 0")
        expected = f"below 2 / pull = {2 / self.pull:g}: at larger steps personal models diverge"
        check(self.personal_lr * self.pull < 2, "personal_lr", self.personal_lr, expected)
        check(0 < self.beta <= 1e6, "beta", self.beta, "more than 0, and at most 1,000,000")
        check_no_pull(self.local)

    @property
    def sends(self) -> tuple[Work, ...]:
        return self._work, MeanLoss()

    def init(self, setup: Setup) -> PFedMeState:
        labels = torch.zeros(setup.num_clients, dtype=torch.long)
        personal = setup.copies(setup.num_clients)
        return PFedMeState(personal[:1].clone(), labels, personal, labels.bool())

    def round(self, state: PFedMeState, ctx: Context) -> Flow[PFedMeState]:
        received = Rows(state.models, state.labels[ctx.cohort])
        trained = yield from train_personal(received, ctx, self._work)
        together = torch.zeros_like(trained.clients)
        # w <- (1 - beta) w + beta mean_i w_i = w + beta mean_i (w_i - w)
        sums = self.averaging.sums(
            trained.update, together, trained.num_examples, 1, trained.clients
        )
        step, moments = self.averaging.move(sums, ctx.layout, state.moments)
        # Extrapolating beyond the mean of running variances can give negative variances.
        pace = torch.full_like(step, min(self.beta, 1.0))
        pace[:, : ctx.layout.num_weights] = self.beta
        return replace(
            state,
            models=state.models + pace * step,
            moments=moments,
            personal=state.personal.index_copy(0, trained.clients, trained.memory),
            has_personal=state.has_personal.index_fill(0, trained.clients, True),
        )

    def serve(self, state: PFedMeState, ctx: Context) -> Flow[Served]:
        """Each client's personal model, or the global model if it has none."""
        yield from ()  # asks nothing
        # Row 0 of the table below is the global model, and row i + 1 the personal model of client
        # i.
        own = torch.where(state.has_personal, torch.arange(ctx.num_clients) + 1, 0)
        models = Rows(torch.cat([state.models, state.personal]), own[ctx.cohort])
        labels = state.labels[ctx.cohort]
        return Served(models, labels, adapted_from=Rows(state.models, labels))

    @property
    def _work(self) -> MoreauTraining:
        return MoreauTraining(self.local, self.pull, self.personal_steps, self.personal_lr)
