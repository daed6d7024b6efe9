"""Per-FedAvg: Fallah et al., Personalized federated learning with theoretical guarantees: a
model-agnostic meta-learning approach, NeurIPS 2020, Algorithm 1."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch

from umbel.algorithms.base import Algorithm, Served, Setup, State, Traits, one_model
from umbel.checks import check
from umbel.client.work import LocalTraining, MeanLoss, MetaTraining, Work
from umbel.client.work.local_training import check_no_pull
from umbel.client.work.meta_training import Variant
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context, train, train_summed


@dataclass(frozen=True)
class PerFedAvg(Algorithm[State]):
    """Train one global model to be good after a gradient step on a client's own data.

    Fallah et al. 2020, Algorithm 1. Clients descend F_i(w) = f_i(w - alpha grad f_i(w)) for the
    mini-batches of `local`, whose learning rate is beta: w <- w - beta (I - alpha H_i(w)) grad
    f_i(w - alpha grad f_i(w)), with a separate mini-batch for every factor; the server takes the
    mean. When a client is served, it adapts the global model by `served_steps` gradient steps on
    all its training examples; so does a newcomer. A client that does not answer uses the global
    model. All clients are in one cluster.
    """

    traits: ClassVar[Traits] = Traits(only_trains=None, adapts=True)

    alpha: float = 0.01  #: alpha, the learning rate of the inner step
    #: computation of the term with the Hessian; "first-order" and "hessian-free" are the paper's
    #: cheaper approximations
    variant: Variant = "exact"
    #: for "hessian-free": the two gradients are taken at w + delta v and w - delta v
    delta: float = 0.001
    served_steps: int = 1  #: gradient steps by which a client adapts the model
    #: how clients train; `lr` is the paper's beta
    local: LocalTraining = field(default_factory=lambda: LocalTraining(lr=0.001))
    #: how updates are averaged
    averaging: Averaging = field(default_factory=lambda: Averaging("equal"))

    def __post_init__(self) -> None:
        check(self.alpha > 0, "alpha", self.alpha, "more than 0")
        check(self.delta > 0, "delta", self.delta, "more than 0")
        steps = self.served_steps
        check(1 <= steps <= 1_000_000, "served_steps", steps, "in 1 to 1,000,000")
        check_no_pull(self.local)

    @property
    def sends(self) -> tuple[Work, ...]:
        return self._work, self._adapting, MeanLoss()

    def init(self, setup: Setup) -> State:
        return one_model(setup)

    def round(self, state: State, ctx: Context) -> Flow[State]:
        reduction = self.averaging.reduction(1, state.labels)
        theta = Rows(state.models, state.labels[ctx.cohort])
        trained = yield from train_summed(theta, ctx, self._work, reduction)
        step, moments = self.averaging.move(trained.sums, ctx.layout, state.moments)
        return replace(state, models=state.models + step, moments=moments)

    def serve(self, state: State, ctx: Context) -> Flow[Served]:
        """The global model, adapted by each client to its own training examples."""
        labels = state.labels[ctx.cohort]
        common = Rows(state.models, labels)
        trained = yield from train(common, ctx, self._adapting)
        # Row 0 of the table is the global model, for clients that do not answer; the others follow
        # it.
        own = torch.zeros(ctx.num_clients, dtype=torch.long)
        own[trained.clients] = torch.arange(len(trained.clients)) + 1
        models = torch.cat([state.models, state.models + trained.update])
        return Served(Rows(models, own[ctx.cohort]), labels, adapted_from=common)

    @property
    def _work(self) -> MetaTraining:
        return MetaTraining(self.local, self.alpha, self.variant, self.delta)

    @property
    def _adapting(self) -> LocalTraining:
        return LocalTraining(lr=self.alpha, steps=self.served_steps, batch_size="all")
