"""IFCA: Ghosh et al., An efficient framework for clustered federated learning, NeurIPS 2020,
Algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from umbel.algorithms.base import Algorithm, Known, Served, Setup, State, check_num_clusters, spread
from umbel.checks import check
from umbel.client.work import Gradient, Judge, LocalTraining
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.answers import BestGradients, SummedBest
from umbel.server.ask import Context, best_gradients, losses, train_best_summed


@dataclass(frozen=True)
class IFCAState(State):
    """`models` holds the K models of each restart still in the race, one restart after another.

    `labels` are the choices within the leading restart.
    """

    choices: Tensor  # (R, M) int64: what each client chose last, -1 before its first round
    losses: Tensor  # (R, M, K): the training loss of every model then, NaN before

    @property
    def fits(self) -> Tensor:
        """(R, M) the training loss of each choice, NaN before the first round."""
        return self.losses.gather(2, self.choices.clamp(min=0)[..., None])[..., 0]


@dataclass(frozen=True)
class IFCA(Algorithm[IFCAState]):
    """Each client picks the model with the lowest training loss, and the server averages per model.

    With `restarts` above 1, that many sets of models are trained side by side for the first
    `trial_rounds` rounds, at as many times the cost, and the one that `keep` prefers goes on: the
    lowest training loss, or the largest smallest cluster. A client never asked is in cluster 0
    until it is served: then it picks the model with the lowest loss on all its training examples.
    """

    num_clusters: int = 2  # K
    local: LocalTraining = field(default_factory=LocalTraining)
    averaging: Averaging = field(default_factory=Averaging)
    send: Literal["update", "gradient"] = "update"  # the paper's option II, or option I
    gradient: Gradient = field(default_factory=Gradient)  # what is sent under option I
    judge: Judge = "all"  # choose by all training examples, or by the round's first mini-batch
    restarts: int = 1
    trial_rounds: int = 10
    keep: Literal["lowest-loss", "most-balanced"] = "lowest-loss"

    def __post_init__(self) -> None:
        check(self.num_clusters >= 1, "num_clusters", self.num_clusters, "1 or more")
        check(self.restarts >= 1, "restarts", self.restarts, "1 or more")
        check(self.trial_rounds >= 1, "trial_rounds", self.trial_rounds, "1 or more")

    def check(self, known: Known) -> None:
        super().check(known)
        check_num_clusters(self.num_clusters, known)

    def init(self, setup: Setup) -> IFCAState:
        check_num_clusters(self.num_clusters, setup)
        # The models must differ: equal ones tie, and every client would pick cluster 0.
        models = setup.new_models(self.restarts * self.num_clusters)
        nobody = torch.full((self.restarts, setup.num_clients), -1)
        labels = torch.zeros(setup.num_clients, dtype=torch.long)
        unknown = torch.full((*nobody.shape, self.num_clusters), torch.nan)
        return IFCAState(models, labels, nobody, unknown.double())

    def round(self, state: IFCAState, ctx: Context) -> Flow[IFCAState]:
        models, choices, found = [], state.choices.clone(), state.losses.clone()
        for restart, rivals in enumerate(torch.split(state.models, self.num_clusters)):
            step, answer = yield from self._improve(rivals, ctx)
            models.append(rivals + step)
            choices[restart, answer.clients] = answer.chosen
            found[restart, answer.clients] = answer.losses.double()
        state = replace(state, models=torch.cat(models), choices=choices, losses=found)
        if ctx.round + 1 == self.trial_rounds:
            state = self._end_race(state)
        return replace(state, labels=state.choices[self._leader(state)].clamp(min=0))

    def serve(self, state: IFCAState, ctx: Context) -> Flow[Served]:
        """The model with the lowest training loss, newcomers included.

        Who is judged by a mini-batch keeps the model it chose last.
        """
        leader = self._leader(state)
        models = self._models_of(state, leader)
        undecided = ctx.cohort[state.choices[leader][ctx.cohort] < 0]
        asked = ctx if self.judge == "all" else ctx.asking(undecided, optional=True)
        labels = state.labels
        if len(asked.cohort):
            # A client that does not answer keeps what it chose last.
            fit = yield from losses(models, asked)
            labels = labels.index_copy(0, fit.clients, fit.losses.argmin(1))
        return Served(Rows(models, labels[ctx.cohort]), labels[ctx.cohort])

    def evidence(self, state: IFCAState) -> Mapping[str, Tensor]:
        clients = spread(len(state.labels))
        return {"clients": clients, "losses": state.losses[self._leader(state)][clients]}

    def _improve(
        self, models: Tensor, ctx: Context
    ) -> Flow[tuple[Tensor, SummedBest | BestGradients]]:
        """The step (K, P) of one restart's models, and what the clients answered."""
        if self.send == "gradient":
            answer = yield from best_gradients(models, ctx, self.gradient, self.judge)
            return self._gradient_step(answer, ctx), answer
        reduction = self.averaging.reduction(self.num_clusters)
        trained = yield from train_best_summed(models, ctx, self.local, reduction, self.judge)
        return self.averaging.step_of(trained.sums, ctx.layout), trained

    def _gradient_step(self, answer: BestGradients, ctx: Context) -> Tensor:
        """Option I divides by the number of clients M, not by the size of the cluster."""
        moves = answer.gradient * (-self.local.at_round(ctx.round).lr / ctx.num_clients)
        step = moves.new_zeros(self.num_clusters, moves.shape[1])
        step = step.index_add_(0, answer.chosen, moves)
        if not self.averaging.shared:
            return step
        return torch.where(ctx.layout.mask(self.averaging.shared), moves.sum(0), step)

    def _leader(self, state: IFCAState) -> int:
        """The restart that `keep` prefers."""
        if self.keep == "lowest-loss":
            return int(state.fits.nanmean(1).nan_to_num(torch.inf).argmin())
        sizes = [torch.bincount(c[c >= 0], minlength=self.num_clusters) for c in state.choices]
        return int(torch.stack(sizes).min(1).values.argmax())

    def _end_race(self, state: IFCAState) -> IFCAState:
        leader = self._leader(state)
        return replace(
            state,
            models=self._models_of(state, leader),
            choices=state.choices[leader : leader + 1],
            losses=state.losses[leader : leader + 1],
        )

    def _models_of(self, state: IFCAState, restart: int) -> Tensor:
        return state.models[restart * self.num_clusters : (restart + 1) * self.num_clusters]
