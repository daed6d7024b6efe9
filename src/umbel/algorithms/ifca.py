"""IFCA: Ghosh et al., An efficient framework for clustered federated learning, NeurIPS 2020,
Algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from torch import Tensor

from umbel.algorithms.base import Algorithm, Served, Setup, State, Traits
from umbel.checks import check, check_least
from umbel.client.work import ChooseByLoss, Gradient, Judge, LocalTraining, MeanLoss, Work
from umbel.client.work.local_training import check_plain_steps
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.ask import (
    BestGradients,
    Context,
    Sample,
    SummedBest,
    best_gradients,
    losses,
    train_best_summed,
)
from umbel.server.averaging_rules import AveragingRule, Moments
from umbel.server.repeated_rows import opinions


@dataclass(frozen=True)
class IFCAState(State):
    choices: Tensor  # (M,) int64: the model of each client's last choice, -1 before its first round
    losses: Tensor  # (M, K): the training loss of every model at that choice, NaN before


@dataclass(frozen=True)
class IFCA(Algorithm[IFCAState]):
    """Clients choose the model with the lowest training loss, and the server averages per model.

    Ghosh et al. 2020, Algorithm 1. A client never asked is in cluster 0 until it is served: then it
    chooses the model with the lowest loss on all its training examples. With poor initial models,
    two groups often end up with one model: `Restarts(IFCA(...))` keeps the best of several starts.
    """

    traits: ClassVar[Traits] = Traits(only_trains=None, weighs={"send": ("update",)})

    num_clusters: int = 2  #: K
    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged
    #: "update" is the paper's option II, "gradient" its option I
    send: Literal["update", "gradient"] = "update"
    gradient: Gradient = field(default_factory=Gradient)  #: the gradient that is sent in option I
    #: choose by the loss on all training examples, or on the round's first mini-batch
    judge: Judge = "all"

    def __post_init__(self) -> None:
        check_plain_steps(self.local, self.send)
        check_least(self, 1, "num_clusters")
        rule = self.averaging.rule
        summed = self.send == "update" or type(rule).mean is AveragingRule.mean
        expected = 'a rule of sums: with send "gradient" the server takes the sum of gradients'
        check(summed, "averaging.rule", type(rule).__name__, expected)

    @property
    def sends(self) -> tuple[Work, ...]:
        work = self.local if self.send == "update" else self.gradient
        return ChooseByLoss(work, self.judge), MeanLoss()

    def init(self, setup: Setup) -> IFCAState:
        # The models must differ: with equal models, losses tie, and every client chooses cluster 0.
        models = setup.new_models(self.num_clusters, self.averaging.shared)
        nobody = torch.full((setup.num_clients,), -1)
        unknown = torch.full((1, self.num_clusters), torch.nan).double()
        unknown = opinions(unknown, setup.num_clients)
        return IFCAState(models, nobody.clamp(min=0), nobody, unknown)

    def round(self, state: IFCAState, ctx: Context) -> Flow[IFCAState]:
        # Each client chooses j = argmin_k F_i(theta_k), and improves theta_j.
        mean, answer = yield from self._improve(state.models, ctx, state.moments)
        answered = torch.bincount(answer.chosen, minlength=self.num_clusters) > 0
        step, moments = self.averaging.advance(mean, answered, ctx.layout, state.moments)
        choices = state.choices.index_copy(0, answer.clients, answer.chosen)
        return IFCAState(
            models=state.models + step,
            labels=choices.clamp(min=0),
            choices=choices,
            losses=state.losses.index_copy(0, answer.clients, answer.losses.double()),
            moments=moments,
        )

    def serve(self, state: IFCAState, ctx: Context) -> Flow[Served]:
        """The model with the lowest training loss, newcomers included.

        If clients choose by a mini-batch, each keeps the model of its last choice.
        """
        # A choice of -1: never asked, or never answered.
        undecided = ctx.cohort[state.choices[ctx.cohort] < 0]
        asked = ctx if self.judge == "all" else ctx.asking(undecided, optional=True)
        labels = state.labels
        if len(asked.cohort):
            # A client that does not answer keeps its last choice.
            fit = yield from losses(state.models, asked)
            labels = labels.index_copy(0, fit.clients, fit.losses.argmin(1))
        return Served(Rows(state.models, labels[ctx.cohort]), labels[ctx.cohort])

    def fit(self, state: IFCAState) -> Tensor:
        """(M,) the training loss of each client with the model that it chose."""
        return state.losses.gather(1, state.labels[:, None])[:, 0]

    def evidence(self, state: IFCAState, sample: Sample) -> Mapping[str, Tensor]:
        clients = sample(len(state.labels))
        return {"clients": clients, "losses": state.losses[clients]}

    def _improve(
        self, models: Tensor, ctx: Context, moments: Moments
    ) -> Flow[tuple[Tensor, SummedBest | BestGradients]]:
        """The mean step (K, P) of the models, and the clients' answers."""
        if self.send == "gradient":
            answer = yield from best_gradients(models, ctx, self.gradient, self.judge)
            return self._gradient_step(answer, ctx), answer
        reduction = self.averaging.reduction(self.num_clusters)
        trained = yield from train_best_summed(models, ctx, self.local, reduction, self.judge)
        return self.averaging.mean(trained.sums, ctx.layout, moments), trained

    def _gradient_step(self, answer: BestGradients, ctx: Context) -> Tensor:
        """Return the step (K, P) of option I: theta_k <- theta_k - (gamma / M) sum_i g_i.

        The sum is over the clients that chose k, and M is the number of all clients, not of these.
        """
        moves = answer.gradient * (-self.local.at_round(ctx.round).lr / ctx.num_clients)
        step = moves.new_zeros(self.num_clusters, moves.shape[1])
        step = step.index_add_(0, answer.chosen, moves)
        if not self.averaging.shared:
            return step
        # Shared parameters take the gradients of all clients, whichever model these chose.
        return torch.where(ctx.layout.mask(self.averaging.shared), moves.sum(0), step)
