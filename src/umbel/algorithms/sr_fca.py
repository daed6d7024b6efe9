"""SR-FCA: Vardhan, Ghosh & Mazumdar, An improved federated clustering algorithm with model-based
clustering, arXiv 2210.11538."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from umbel.algorithms.base import (
    Algorithm,
    Served,
    Setup,
    State,
    Traits,
    admitted_by_loss,
    federate,
    of_compared,
    with_lowest_loss,
)
from umbel.checks import check, check_least
from umbel.client.work import LocalTraining, MeanLoss, Work
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging, cluster_mean
from umbel.server.ask import Context, Sample, losses, train
from umbel.server.repeated_rows import copies, model_of_each
from umbel.server.robust_rules import TrimmedMean

ROUNDING = 1e-6
"""Share of a distance that is rounding, so that pairs at one distance are all near or all far."""


@dataclass(frozen=True)
class SRFCAState(State):
    """One model until the first round's clusters are found, then one for each cluster."""

    placed: Tensor  # (M,) bool: whether the client's cluster is known
    cross: Tensor  # (M, M) double: L_j(w_i) of client j and the model that i trained alone, or NaN
    bound: float  # lambda, the largest distance of near clients; below 0 before the first clusters


@dataclass(frozen=True)
class SRFCA(Algorithm[SRFCAState]):
    """Cluster clients whose own models fit each other; then train, recluster and merge.

    Vardhan et al., arXiv 2210.11538. In the first round every client trains alone, to w_i, and is
    near another if d(i, j) = (L_j(w_i) + L_i(w_j)) / 2 is at most lambda. A client drawn at random
    and all near it are a cluster, and so on with the others. The clients of clusters of at most
    `smallest` clients wait for the next clusters.

    Clusters train from the first model, and take trimmed means of their clients' updates. After
    `refine_rounds` rounds, each client joins the cluster with the smallest (L_i(theta_k) + the mean
    of L_j(w_i) over its clients j) / 2, and clusters that are near by their models' losses become
    one, with the mean model. This happens `refinements` times; rounds after it train the last
    clusters. In the authors' code each refinement trains new models.

    All clients are asked for w_i, for losses of all w_i, and in refinements. Those that do not
    answer train no model, and are served the model with the lowest loss; so are those that wait.
    """

    traits: ClassVar[Traits] = Traits(only_trains=None)

    threshold: float | None = None  #: lambda; None: `quantile` of the distances of all pairs
    quantile: float = 0.2  #: share of all pairs that are near
    smallest: int = 2  #: t: clusters of at most so many clients are dissolved, unless all are
    refinements: int = 2  #: R
    refine_rounds: int = 10  #: rounds before each refinement
    warm_up_training: LocalTraining | None = None  #: how clients train alone; None: `local`
    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    #: how updates are averaged
    averaging: Averaging = field(default_factory=lambda: Averaging("equal", rule=TrimmedMean()))

    def __post_init__(self) -> None:
        check(0 < self.quantile <= 1, "quantile", self.quantile, "in (0, 1]")
        check_least(self, 0, "smallest", "refinements")
        check_least(self, 1, "refine_rounds")

    @property
    def sends(self) -> tuple[Work, ...]:
        return self.local, self.warm_up_training or self.local, MeanLoss()

    def init(self, setup: Setup) -> SRFCAState:
        count = setup.num_clients
        nobody = torch.zeros(count, dtype=torch.long)
        unknown = torch.full((1, count), torch.nan).double()
        cross = copies(unknown, count, f"losses of {count:,} models at each client")
        return SRFCAState(setup.new_models(1), nobody, nobody.bool(), cross, bound=-1.0)

    def admit(self, state: SRFCAState, ctx: Context) -> Flow[SRFCAState]:
        if state.bound < 0:
            return state  # the first clusters are of all clients
        found: SRFCAState = yield from admitted_by_loss(state, ctx)
        return replace(found, placed=state.placed.index_fill(0, ctx.cohort, True))

    def round(self, state: SRFCAState, ctx: Context) -> Flow[SRFCAState]:
        if state.bound < 0:
            return (yield from self._first_clusters(state, ctx.everyone))
        known = ctx.asking(ctx.cohort[state.placed[ctx.cohort]])
        state = yield from federate(state, known, self.local, self.averaging)
        refinement, over = divmod(ctx.round, self.refine_rounds)
        if over == 0 and 1 <= refinement <= self.refinements:
            state = yield from self._refined(state, ctx.everyone)
        return state

    def serve(self, state: SRFCAState, ctx: Context) -> Flow[Served]:
        """The model of the client's cluster; if it has none, the one with the lowest loss."""
        labels = (yield from with_lowest_loss(state, ctx, ~state.placed))[ctx.cohort]
        return Served(Rows(state.models, labels), labels)

    def evidence(self, state: SRFCAState, sample: Sample) -> Mapping[str, Tensor]:
        known = (~state.cross.diagonal().isnan()).nonzero()[:, 0]
        clients = known[sample(len(known))]
        return of_compared(clients, distance=_apart(state.cross[clients][:, clients]).float())

    def _first_clusters(self, state: SRFCAState, ctx: Context) -> Flow[SRFCAState]:
        alone = self.warm_up_training or self.local
        trained = yield from train(Rows(state.models, state.labels), ctx, alone)
        if not len(trained.clients):
            return state
        own = state.models + trained.update  # (N, P): w_i
        fit = yield from losses(own, ctx.asking(trained.clients))
        if len(fit.clients) < 2:
            return state  # the next round tries again
        clients = fit.clients
        cross = fit.losses[:, torch.isin(trained.clients, clients)]  # (N, N): L_j(w_i), row j
        with ctx.clustering:
            apart = _apart(cross)
            bound = self.threshold if self.threshold is not None else self._near(apart)
            bound += ROUNDING * abs(bound)
            clusters = _pivoted(apart <= bound, ctx.clustering_seed)
            sizes = torch.bincount(clusters)
            large = sizes > min(self.smallest, int(sizes.max()) - 1)
            # The clusters that are kept have the numbers 0 to K - 1.
            numbers = (large.cumsum(0) - 1)[clusters].clamp(min=0)
        everyone = state.cross.clone()
        everyone[clients[:, None], clients] = cross
        return SRFCAState(
            models=model_of_each(state.models, int(large.sum())),
            labels=state.labels.index_copy(0, clients, numbers),
            placed=state.placed.index_copy(0, clients, large[clusters]),
            cross=everyone,
            bound=bound,
        )

    def _near(self, apart: Tensor) -> float:
        """The `quantile` of distances (N, N): one of them, not a value between two."""
        pairs = apart[torch.ones_like(apart).triu(1).bool()].numpy()
        return float(np.quantile(pairs, self.quantile, method="higher"))

    def _refined(self, state: SRFCAState, ctx: Context) -> Flow[SRFCAState]:
        """Every client joins the nearest cluster, and near clusters are merged."""
        fit = yield from losses(state.models, replace(ctx, optional=True, use="compared"))
        if not len(fit.clients):
            return state
        found = fit.losses  # (N, K): L_i(theta_k)
        with ctx.clustering:
            labels = torch.where(state.placed, state.labels, -1)
            members = [state.cross[labels == k] for k in range(len(state.models))]
            # (N, K): the mean of L_j(w_i) over the clients j of cluster k, as far as it is known.
            own = torch.stack([each[:, fit.clients].nanmean(0) for each in members], 1)
            nearest = (found + torch.where(own.isnan(), found, own)).argmin(1)
            used, numbers = torch.unique(nearest, return_inverse=True)
            # (K, K): row k has the mean losses of all models over the clients of cluster k.
            means = _means(found[:, used], numbers)
            merged = _pivoted(_apart(means) <= state.bound, ctx.clustering_seed)
        return replace(
            state,
            models=_means(state.models[used], merged),
            moments=tuple(_means(each[used], merged) for each in state.moments),
            labels=torch.zeros_like(state.labels).index_copy(0, fit.clients, merged[numbers]),
            placed=torch.zeros_like(state.placed).index_fill(0, fit.clients, True),
        )


def _apart(cross: Tensor) -> Tensor:
    """d(i, j) = (L_j(w_i) + L_i(w_j)) / 2 of all pairs: (N, N)."""
    return (cross + cross.T) / 2


def _means(rows: Tensor, clusters: Tensor) -> Tensor:
    """The plain mean of the rows (N, P) of each cluster: (K, P)."""
    return cluster_mean(rows, clusters, torch.ones_like(clusters), int(clusters.max()) + 1)


def _pivoted(near: Tensor, seed: int) -> Tensor:
    """Clusters (N,): a row drawn at random and all that are near it (N, N), again and again."""
    clusters = torch.full((len(near),), -1)
    for pivot in np.random.default_rng(seed).permutation(len(near)):
        if clusters[pivot] < 0:
            near[pivot, pivot] = True
            clusters[near[pivot] & (clusters < 0)] = clusters.max() + 1
    return clusters
