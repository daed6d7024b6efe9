"""What a clustered FL method is: hyper-parameters, a first state, and a round."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Generic, TypeVar

import torch
from torch import Tensor

from umbel.checks import check
from umbel.client.layout import Layout
from umbel.client.work import LocalTraining
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context, losses, train_summed
from umbel.settings import Settings
from umbel.summary import in_short

KEPT = 200
"""Of more clients than these, a method's evidence is about so many."""


@dataclass(frozen=True)
class State:
    """All that a run carries from round to round: tensors and numbers, nothing else."""

    models: Tensor  # (K, P)
    labels: Tensor  # (M,) int64, the cluster of each client

    __repr__ = in_short

    def __init_subclass__(cls) -> None:
        # A dataclass writes its own `repr`, with all values, unless its class has one.
        if "__repr__" not in vars(cls):
            type.__setattr__(cls, "__repr__", in_short)


S = TypeVar("S", bound=State)


@dataclass(frozen=True)
class Setup:
    """What a method may know before the first round."""

    num_clients: int  # M
    num_rounds: int
    participation: float  # share of the clients asked in each round
    layout: Layout
    new_model: Callable[[int], Tensor]  # number of a model -> its initial values (P,)
    seed: int = 0  # for what a method draws before the first round
    groups: Tensor | None = None  # (M,) the planted truth: for the oracle alone

    __repr__ = in_short

    def new_models(self, count: int) -> Tensor:
        """(count, P): models that all differ. Model 0 is the same for every method."""
        return torch.stack([self.new_model(number) for number in range(count)])


@dataclass(frozen=True)
class Known:
    """What is known of a run that is being built, before it starts; None: not yet."""

    participation: float  # share of the clients asked in each round
    num_clients: int | None = None  # M
    layout: Layout | None = None


@dataclass(frozen=True)
class Served:
    """What each client of a cohort is to use.

    One model each, unless `weights` are given: then client n uses the mixture of all models of the
    table `models.table` (K, P), the k-th with weight `weights[n, k]`, and its row of `models` is
    the one that stands for its cluster, as the heaviest does.
    """

    models: Rows  # row n: the model of the n-th client
    labels: Tensor  # (N,) its cluster
    weights: Tensor | None = None  # (N, K) not negative, each row sums to 1; None: one model each
    adapted_from: Rows | None = None  # row n: its cluster's model, if `models` are personal ones

    __repr__ = in_short


@dataclass(frozen=True)
class Assigned:
    """How well newcomers fit each cluster: the lowest score wins."""

    clients: Tensor  # (N,)
    scores: Tensor  # (N, K)
    meaning: str  # what a score is

    __repr__ = in_short

    @property
    def labels(self) -> Tensor:
        """(N,) the cluster that fits best."""
        return self.scores.argmin(1)


@dataclass(frozen=True)
class Algorithm(Settings, ABC, Generic[S]):
    """Server side of one method: immutable hyper-parameters, and pure state transitions."""

    def check(self, known: Known) -> None:
        """Raise `UsageError` where the method can't work so: asked when a run is built."""
        for member in fields(self):
            value = getattr(self, member.name)
            if isinstance(value, Averaging) and known.layout is not None:
                known.layout.mask(value.shared)

    @abstractmethod
    def init(self, setup: Setup) -> S:
        """The state before the first round. Raises `ValueError` where the setup can't work."""

    @abstractmethod
    def round(self, state: S, ctx: Context) -> Flow[S]:
        """One communication round."""

    def serve(self, state: S, ctx: Context) -> Flow[Served]:
        """The model each client of the cohort is to use: by default that of its cluster."""
        yield from ()  # asks nothing
        labels = state.labels[ctx.cohort]
        return Served(Rows(state.models, labels), labels)

    def assign(self, state: S, ctx: Context) -> Flow[Assigned]:
        """The cluster of each client of a cohort that had no part in training.

        By default the one whose model has the lowest mean loss on its training examples.
        """
        fit = yield from losses(state.models, ctx)
        return Assigned(fit.clients, fit.losses, "training loss")

    def profile(self, state: S) -> Tensor | None:  # noqa: ARG002
        """The vectors (M, D) by which this method clusters the clients, if it keeps such."""
        return None

    def measure(self, state: S) -> Mapping[str, float]:  # noqa: ARG002
        """What this method adds to the record of a round."""
        return {}

    def evidence(self, state: S) -> Mapping[str, Tensor]:  # noqa: ARG002
        """What the clusters rest on, for a run's folder and its report; nothing if there is none.

        `clients` (N,) are those it is about, `spread` over all where there are many, and there
        may be: `similarity` or `distance` (N, N), NaN where unknown; `losses`, `scores` or
        `weights` (N, K), a column a model; `features` (N, D), whose nearness counts;
        `singular_values` (R,).
        """
        return {}


def spread(count: int) -> Tensor:
    """(N,) places from 0 to count - 1: all, or `KEPT` of them, evenly spread."""
    return torch.linspace(0, count - 1, min(count, KEPT), dtype=torch.double).round().long()


def one_model(setup: Setup) -> State:
    """One model, and every client in its cluster."""
    return State(setup.new_models(1), torch.zeros(setup.num_clients, dtype=torch.long))


def federate(state: S, ctx: Context, local: LocalTraining, averaging: Averaging) -> Flow[S]:
    """One round of FedAvg within every cluster (McMahan et al. 2017, Algorithm 1)."""
    reduction = averaging.reduction(len(state.models), state.labels)
    theta = Rows(state.models, state.labels[ctx.cohort])
    trained = yield from train_summed(theta, ctx, local, reduction)
    return replace(state, models=state.models + averaging.step_of(trained.sums, ctx.layout))


def check_no_pull(local: LocalTraining) -> None:
    """Raise `ValueError` where a method whose clients follow another gradient gets FedProx's mu."""
    check(local.proximal == 0, "local.proximal", local.proximal, "0: this method has no such term")


def check_num_clusters(num_clusters: int | None, setup: Setup | Known) -> None:
    """Raise `ValueError` where both numbers are known and clients are fewer than clusters."""
    if num_clusters is not None and setup.num_clients is not None:
        expected = f"at most the number of clients, {setup.num_clients}"
        check(num_clusters <= setup.num_clients, "algorithm.num_clusters", num_clusters, expected)
