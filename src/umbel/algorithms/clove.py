"""CLoVE: Bhatia et al., CLoVE: Personalized federated learning through clustering of loss vector
embeddings, arXiv 2506.22427, ICML 2026."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from umbel.algorithms.base import (
    Algorithm,
    Served,
    Setup,
    State,
    Traits,
    federate,
    with_lowest_loss,
)
from umbel.checks import check_least
from umbel.client.work import LocalTraining, MeanLoss, Work
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context, Sample, losses
from umbel.server.clustering import k_means
from umbel.server.numbering import match_costs
from umbel.server.repeated_rows import opinions


@dataclass(frozen=True)
class CLoVEState(State):
    losses: Tensor  # (M, K): the client's last losses, NaN before
    unchanged: Tensor  # (M,) int64: rounds in a row in which a client's cluster was the same


@dataclass(frozen=True)
class CLoVE(Algorithm[CLoVEState]):
    """Cluster clients by their losses under all models, and match the clusters to the models.

    Bhatia et al., arXiv 2506.22427. Each client of the cohort sends its losses under all models,
    l_i = (F_i(theta_1), ..., F_i(theta_K)). k-means groups these vectors; clusters and models are
    matched one to one, so that the sum of losses is the smallest. Then each client trains the model
    of its cluster. Two groups with the lowest loss under one model, which `IFCA` would join, still
    train two.

    Clients that do not answer keep their cluster and do not train. If fewer than K answer, each
    keeps its cluster, and those never asked take the model with the lowest loss. When a client is
    served before it was ever asked, it takes that model, too.
    """

    traits: ClassVar[Traits] = Traits(only_trains=None)

    num_clusters: int = 2  #: K, the number of models and of clusters
    #: whether the first round clusters by losses, or at random into clusters of equal size
    first_round: Literal["losses", "random"] = "losses"
    square_roots: bool = False  #: cluster by the square roots of the losses
    #: stop clustering when each client of a cohort has kept its cluster for so many rounds; None:
    #: never
    stop_after: int | None = None
    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged
    max_examples: int | None = None  #: most examples of a client for the loss of a model; None: all

    def __post_init__(self) -> None:
        check_least(self, 1, "num_clusters", "stop_after")
        MeanLoss(self.max_examples)  # raises for numbers that are not allowed

    @property
    def sends(self) -> tuple[Work, ...]:
        return self.local, self._judge, MeanLoss()

    def init(self, setup: Setup) -> CLoVEState:
        # The models must differ: with equal models, all vectors of losses are alike.
        models = setup.new_models(self.num_clusters, self.averaging.shared)
        labels = torch.zeros(setup.num_clients, dtype=torch.long)
        if self.first_round == "random":
            order = np.random.default_rng(setup.seed).permutation(setup.num_clients)
            labels = torch.from_numpy(order) % self.num_clusters
        unknown = torch.full((1, self.num_clusters), torch.nan).double()
        unknown = opinions(unknown, setup.num_clients)
        return CLoVEState(models, labels, unknown, torch.zeros_like(labels))

    def round(self, state: CLoVEState, ctx: Context) -> Flow[CLoVEState]:
        if self._settled(state, ctx.cohort):
            return (yield from federate(state, ctx, self.local, self.averaging))
        fit = yield from losses(state.models, ctx, self._judge)  # (N, K)
        at_random = self.first_round == "random" and ctx.round == 0
        if not at_random:
            with ctx.clustering:
                state = self._clustered(state, fit.clients, fit.losses, ctx.clustering_seed)
        state = replace(state, losses=state.losses.index_copy(0, fit.clients, fit.losses.double()))
        known = ctx.asking(fit.clients)
        return (yield from federate(state, known, self.local, self.averaging))

    def serve(self, state: CLoVEState, ctx: Context) -> Flow[Served]:
        """The model of the client's cluster; if it has none, the one with the lowest loss."""
        found = yield from with_lowest_loss(state, ctx, self._unseen(state), self._judge)
        labels = found[ctx.cohort]
        return Served(Rows(state.models, labels), labels)

    def fit(self, state: CLoVEState) -> Tensor:
        """(M,) the training loss of each client with the model of its cluster."""
        return state.losses.gather(1, state.labels[:, None])[:, 0]

    def profile(self, state: CLoVEState) -> Tensor:
        """(M, K) the losses by which clients are clustered."""
        return state.losses

    def evidence(self, state: CLoVEState, sample: Sample) -> Mapping[str, Tensor]:
        clients = sample(len(state.labels))
        return {"clients": clients, "losses": state.losses[clients]}

    @property
    def _judge(self) -> MeanLoss:
        return MeanLoss(self.max_examples)

    def _unseen(self, state: CLoVEState) -> Tensor:
        """(M,) whether a client was never asked for its losses."""
        return state.losses[:, 0].isnan()

    def _settled(self, state: CLoVEState, cohort: Tensor) -> bool:
        """Whether each client of the cohort has kept its cluster for long enough."""
        stop = self.stop_after
        return stop is not None and bool((state.unchanged[cohort] >= stop).all())

    def _clustered(
        self, state: CLoVEState, clients: Tensor, found: Tensor, seed: int
    ) -> CLoVEState:
        """The state with new clusters of these clients, by their losses (N, K)."""
        before = state.labels[clients]
        if len(clients) < self.num_clusters:
            labels = torch.where(self._unseen(state)[clients], found.argmin(1), before)
        else:
            vectors = found.clamp(min=0).sqrt() if self.square_roots else found
            labels = match_costs(k_means(vectors, self.num_clusters, seed), vectors)
        kept = torch.where(labels == before, state.unchanged[clients] + 1, 0)
        return replace(
            state,
            labels=state.labels.index_copy(0, clients, labels),
            unchanged=state.unchanged.index_copy(0, clients, kept),
        )
