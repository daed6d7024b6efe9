"""FedDrift: Jothimurugesan et al., Federated learning under distributed concept drift, arXiv
2206.00799, AISTATS 2023."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from umbel.algorithms.base import Algorithm, Known, Setup, State, Traits, one_model
from umbel.algorithms.by_batch import check_apart_by_batch, federate_by_batch
from umbel.checks import check_least
from umbel.client.work import LocalTraining, ModelScores, Work
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context, model_scores
from umbel.server.clustering import agglomerate
from umbel.server.shares import within_shares

NEVER = 1e30
"""A distance at which no models are merged."""


@dataclass(frozen=True)
class FedDriftState(State):
    """Labels are the models of the clients' latest examples."""

    owners: Tensor  # (M, T): the model to which each step's examples belong, -1 for none
    heard: Tensor  # (M, T) bool: whether the client was heard of in the step, with examples of it
    isolated: Tensor  # (M,): the first step in which the client's new model may be shared again
    drifted: Tensor  # (M,) bool: whether the client has drifted at this step
    merged: int = 0  # models that were merged into others at this step
    born: int = 0  # models that began at this step


@dataclass(frozen=True)
class FedDrift(Algorithm[FedDriftState]):
    """Give clients whose data have drifted new models, and merge models that fit each other's data.

    Jothimurugesan et al., arXiv 2206.00799, Algorithms 1 and 2. At the beginning of each step of
    time, every client scores all models on its new examples, and takes the best. If that is worse
    by more than `delta` than its own model was on the examples of the step before, the client has
    drifted: it gets a model of its own, a copy of the best, which nobody else may use for
    `isolation` steps. Models are then compared by their scores on each other's examples: with B_kl,
    the score of model k on all examples that belong to model l, their distance is max(B_kk - B_kl,
    B_ll - B_lk, 0). Complete linkage, cut at `merge_delta`, merges models into means, weighted by
    the numbers of (client, step) batches behind them. Every round trains each model by FedAvg on
    all examples that belong to it, whatever the run keeps: a client may train several.

    `eager` is FedDrift-Eager (Algorithm 1): all clients that drift at one step share one new model,
    and nothing is isolated or merged. Beyond `max_models`, the model that was used longest ago is
    given up; if all are in use, a client that has drifted stays with the best. A score is the
    accuracy, or with `scores = "loss"` the mean loss with a minus, as for regression; `delta` is
    on its scale. The paper has .04 for SEA, .20 for SINE, .10 for CIRCLE and MNIST.

    Clients without new examples, or without an answer, stay with their model. Without time, it is
    FedAvg.
    """

    traits: ClassVar[Traits] = Traits(only_trains=None)

    delta: float = 0.1  #: fall of a client's score, from one step to the next, that is a drift
    merge_delta: float | None = None  #: largest distance of models that are merged; None: `delta`
    isolation: int = 1  #: steps for which a new model is its client's alone
    eager: bool = False  #: one new model for all that drift at a step, and no merging
    max_models: int = 10  #: largest number of models
    scores: Literal["accuracy", "loss"] = "accuracy"  #: what clients judge models by
    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged

    def __post_init__(self) -> None:
        check_least(self, 0, "delta", "merge_delta", "isolation")
        check_least(self, 1, "max_models")

    @property
    def sends(self) -> tuple[Work, ...]:
        return (*super().sends, self._judge)

    def check(self, known: Known) -> None:
        super().check(known)
        check_apart_by_batch(self.averaging)

    def init(self, setup: Setup) -> FedDriftState:
        first = one_model(setup)
        owners = torch.full((setup.num_clients, setup.num_steps + 1), -1)
        heard, nobody = torch.zeros_like(owners).bool(), torch.zeros_like(first.labels)
        return FedDriftState(first.models, first.labels, owners, heard, nobody, nobody.bool())

    def round(self, state: FedDriftState, ctx: Context) -> Flow[FedDriftState]:
        if ctx.step == 0:
            owners = state.owners.clone()
            owners[:, 0] = 0  # one model for all
            heard = state.heard.clone()
            heard[ctx.cohort, 0] = True
            state = replace(state, owners=owners, heard=heard)
        elif ctx.begins:
            state = yield from self._begun(state, ctx)
        return (yield from federate_by_batch(state, state.owners, ctx, self.local, self.averaging))

    def admit(self, state: FedDriftState, ctx: Context) -> Flow[FedDriftState]:
        """Their examples of this step belong to the model that fits them best."""
        if ctx.step == 0 or ctx.begins:
            return state  # the round gives them models, as to all others
        usable = self._usable(state, ctx.step)
        asked = self._on(ctx.step, ctx).asking(ctx.cohort, optional=True)
        fit = yield from model_scores(state.models, asked, self._judge)
        best = fit.scores.nan_to_num(-torch.inf).where(usable, -torch.inf).argmax(1)
        owners = state.owners.clone()
        owners[fit.clients, ctx.step] = best
        labels = state.labels.index_copy(0, fit.clients, best)
        return self._heard(replace(state, owners=owners, labels=labels), fit.clients, ctx.step)

    def measure(self, state: FedDriftState) -> Mapping[str, float]:
        return {
            "drifted": int(state.drifted.sum()),
            "models_born": state.born,
            "models_merged": state.merged,
        }

    @property
    def _judge(self) -> ModelScores:
        return ModelScores(self.scores)

    def _heard(self, state: FedDriftState, clients: Tensor, step: int) -> FedDriftState:
        """The state with these clients noted as having examples of a step."""
        heard = state.heard.clone()
        heard[clients, step] = True
        return replace(state, heard=heard)

    def _usable(self, state: FedDriftState, step: int) -> Tensor:
        """(K,) the models that free clients may choose, and that may be merged."""
        isolated = state.labels[state.isolated > step]
        return torch.ones(len(state.models), dtype=torch.bool).index_fill(0, isolated, False)

    def _begun(self, state: FedDriftState, ctx: Context) -> Flow[FedDriftState]:
        """The state with the new examples of a step given to models."""
        step, labels = ctx.step, state.labels
        free, usable = state.isolated <= step, self._usable(state, step)
        fit = yield from model_scores(state.models, self._on(step, ctx), self._judge)
        own = Rows(state.models[:, None], labels)
        before = yield from model_scores(own, self._on(step - 1, ctx), self._judge)
        was = torch.full((len(labels),), torch.nan).double()
        was[before.clients] = before.scores[:, 0]
        was[state.owners[:, step - 1] < 0] = torch.nan  # they were not there
        most, best = fit.scores.nan_to_num(-torch.inf).where(usable, -torch.inf).max(1)
        choosing = free[fit.clients] & most.isfinite()
        clients, best = fit.clients[choosing], best[choosing]
        labels = labels.index_copy(0, clients, best)
        # The difference of a client that is new is NaN, which is no drift.
        away = clients[was[clients] - most[choosing] > self.delta]
        owners = state.owners.clone()
        owners[:, step] = labels
        state = replace(
            self._heard(state, fit.clients, step),
            labels=labels,
            owners=owners,
            drifted=torch.zeros_like(state.drifted).index_fill(0, away, True),
            merged=0,
        )
        state, begun = self._divided(state, away, step)
        usable[[number for number in begun if number < len(usable)]] = False
        return state if self.eager else (yield from self._merged(state, usable, ctx))

    def _divided(
        self, state: FedDriftState, away: Tensor, step: int
    ) -> tuple[FedDriftState, list[int]]:
        """The state with new models for the clients that have drifted, and their numbers."""
        begun: list[int] = []
        parts = [away] if self.eager else list(away[:, None])
        for mine in parts if len(away) else ():
            number, models = len(state.models), state.models
            start = models[state.labels[mine[0]]]
            owners = state.owners
            if number < self.max_models:
                models = torch.cat([models, start[None]])
            else:
                steps = torch.arange(owners.shape[1])
                used = [int(steps.where(owners == k, -1).max()) for k in range(number)]
                number = min(range(number), key=used.__getitem__)
                if used[number] == step:
                    break  # all models are in use
                models = models.index_copy(0, torch.tensor([number]), start[None])
                owners = owners.where(owners != number, -1)
            labels = state.labels.index_fill(0, mine, number)
            owners = owners.clone()
            owners[mine, step] = number
            begun.append(number)
            until = step if self.eager else step + self.isolation
            isolated = state.isolated.index_fill(0, mine, until)
            state = replace(
                state,
                models=models,
                labels=labels,
                owners=owners,
                isolated=isolated,
                moments=(),
            )
        return replace(state, born=len(begun)), begun

    def _merged(self, state: FedDriftState, usable: Tensor, ctx: Context) -> Flow[FedDriftState]:
        """The state with models merged that fit each other's examples."""
        chosen = usable.nonzero()[:, 0]
        if len(chosen) < 2:
            return state
        on = torch.full((len(chosen), len(chosen)), torch.nan).double()  # B: model, examples
        for place, model in enumerate(chosen.tolist()):
            mine = state.owners == model
            asked = ctx.everyone.asking(mine.any(1).nonzero()[:, 0], optional=True, use="compared")
            fit = yield from model_scores(state.models[chosen], asked.during(mine), self._judge)
            there = fit.scores.isfinite().all(1)
            together = torch.zeros_like(fit.clients)
            weights = within_shares(fit.num_examples, together, ctx.max_share).double() * there
            if bool(there.any()):
                on[:, place] = weights @ fit.scores.nan_to_num() / weights.sum()
        worse = on.diagonal()[:, None] - on
        # Examples that nobody has answered for merge no models.
        apart = torch.maximum(worse, worse.T).clamp(min=0).nan_to_num(NEVER)
        cut = self.delta if self.merge_delta is None else self.merge_delta
        with ctx.clustering:
            groups = agglomerate(apart.fill_diagonal_(0), "complete", threshold=cut)
        owners = state.owners[state.heard] + 1  # 0 for a model that was given up
        batches = torch.bincount(owners, minlength=len(state.models) + 1)[1:]
        become, models = torch.arange(len(state.models)), state.models.clone()
        for group in range(int(groups.max()) + 1):
            mine = chosen[groups == group]
            if len(mine) < 2:
                continue
            weights = batches[mine].to(models.dtype)
            if not bool(weights.any()):  # nobody whose batches are behind them is known any more
                weights = torch.ones_like(weights)
            models[mine[0]] = weights @ models[mine] / weights.sum()
            become[mine] = mine[0]
        left, numbers = torch.unique(become, return_inverse=True)
        if len(left) == len(models):
            return state
        return replace(
            state,
            models=models[left],
            labels=numbers[state.labels],
            owners=torch.where(state.owners >= 0, numbers[state.owners.clamp(min=0)], -1),
            merged=len(models) - len(left),
            moments=(),
        )

    def _on(self, step: int, ctx: Context) -> Context:
        """The context of comparing models on all clients' examples of one step."""
        shares = torch.zeros(ctx.num_clients, ctx.num_steps + 1)
        shares[:, step] = 1
        return ctx.asking(ctx.everyone.cohort, optional=True, use="compared").during(shares)
