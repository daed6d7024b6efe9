"""FL+HC: Briggs, Fan & Andras, Federated learning with hierarchical clustering of local updates to
improve training on non-IID data, IJCNN 2020, Algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from umbel.algorithms.base import (
    Algorithm,
    Assigned,
    Known,
    Setup,
    State,
    check_clustered,
    federate,
    one_model,
)
from umbel.algorithms.fitting import check_num_clusters
from umbel.checks import check
from umbel.client.work import LocalTraining
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging, cluster_mean
from umbel.server.ask import Context, Sample, train
from umbel.server.clustering import agglomerate, check_cut, distances


@dataclass(frozen=True)
class FLHCState(State):
    """One model until the clustering round, then one a cluster."""

    placed: Tensor  # (M,) bool, whose cluster is known; before the clustering round everyone's
    joint: Tensor  # (1, P) the model that was clustered on; empty (0, P) before
    means: Tensor  # (K, W) mean update of each cluster in the clustering round; (0, W) before
    compared: Tensor  # (N,) the clients that the next field is about, as of the clustering round
    distance: Tensor  # (N, N) how far apart their updates were


@dataclass(frozen=True)
class FLHC(Algorithm[FLHCState]):
    """Cluster everyone's updates once, after some rounds of FedAvg; then average within clusters.

    FL+HC, Briggs et al. 2020. FedAvg goes on for `cluster_round` rounds. The clustering round moves
    no model: all clients are asked, whatever the participation, and the clusters start from the
    joint model that they were sent.

    A client that did not answer in that round is served the model of the largest cluster. When it
    is next in a cohort it trains the joint model instead, at the learning rate of the clustering
    round: its update, which is averaged into none, places it in the cluster whose mean update is
    nearest.
    """

    num_clusters: int | None = None  #: K; give either this or `threshold`
    threshold: float | None = None  #: distance at which clusters are kept apart
    cluster_round: int = 10  #: n, the rounds of FedAvg before the clustering round
    metric: Literal["l1", "l2", "cosine"] = "cosine"  #: distance between updates
    #: distance between clusters
    linkage: Literal["complete", "average", "single", "ward"] = "complete"
    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged

    def __post_init__(self) -> None:
        # There is no default: what is far apart depends on the data.
        check_cut(self.num_clusters, self.threshold)
        check(self.cluster_round >= 0, "cluster_round", self.cluster_round, "0 or more")
        fine = self.linkage != "ward" or self.metric == "l2"
        check(fine, "metric", self.metric, '"l2", the only one that linkage "ward" is defined for')

    def check(self, known: Known) -> None:
        super().check(known)
        check_num_clusters(self.num_clusters, known)

    def init(self, setup: Setup) -> FLHCState:
        check_num_clusters(self.num_clusters, setup)
        setup.warn_if_shorter(self.cluster_round + 1, "cluster_round", "clusters its clients")
        first = one_model(setup)
        return FLHCState(
            first.models,
            first.labels,
            placed=torch.ones(setup.num_clients, dtype=torch.bool),
            joint=first.models[:0],
            means=first.models[:0, : setup.layout.num_weights],
            compared=first.labels[:0],
            distance=first.models.new_zeros(0, 0),
        )

    def round(self, state: FLHCState, ctx: Context) -> Flow[FLHCState]:
        if ctx.round >= self.cluster_round and not len(state.joint):
            return (yield from self._cluster(state, ctx.everyone))
        late = ctx.cohort[~state.placed[ctx.cohort]]
        known = ctx.asking(ctx.cohort[state.placed[ctx.cohort]])
        if len(late):
            state = yield from self._admit(state, ctx.asking(late, optional=True))
        return (yield from federate(state, known, self.local, self.averaging))

    def assign(self, state: FLHCState, ctx: Context) -> Flow[Assigned]:
        check_clustered(len(state.joint) > 0, ", or a smaller cluster_round")
        clients, apart = yield from self._to_means(state, ctx)
        return Assigned(clients, apart, f"{self.metric} distance to the mean update")

    def evidence(self, state: FLHCState, sample: Sample) -> Mapping[str, Tensor]:  # noqa: ARG002
        if not len(state.compared):
            return {}
        return {"clients": state.compared, "distance": state.distance}

    @property
    def _local_then(self) -> LocalTraining:
        """How clients train where updates are compared, whenever that is: at one learning rate."""
        return self.local.at_round(self.cluster_round)

    def _cluster(self, state: FLHCState, ctx: Context) -> Flow[FLHCState]:
        """Ask everyone for an update of the one model, and cluster those who answer."""
        trained = yield from train(Rows(state.models, state.labels), ctx, self._local_then)
        if not len(trained.clients):
            return state
        # Buffers such as running statistics say nothing about where a client wants to go.
        rows = trained.update[:, : ctx.layout.num_weights]
        # Fewer clients than clusters are a cluster each.
        wanted = self.num_clusters
        number = None if wanted is None else min(wanted, len(rows))
        with ctx.clustering:
            apart = distances(rows, rows, self.metric).fill_diagonal_(0)
            clusters = agglomerate(apart, self.linkage, number, self.threshold)
        sizes = torch.bincount(clusters)
        placed = torch.zeros_like(state.placed).index_fill(0, trained.clients, True)
        largest = sizes.argmax().expand(ctx.num_clients)
        shown = ctx.sample(len(rows))
        return FLHCState(
            models=state.models.repeat(len(sizes), 1),
            labels=largest.index_copy(0, trained.clients, clusters),
            placed=placed,
            joint=state.models,
            means=cluster_mean(rows, clusters, torch.ones_like(clusters), len(sizes)),
            compared=trained.clients[shown],
            distance=apart[shown][:, shown].float(),
        )

    def _admit(self, state: FLHCState, ctx: Context) -> Flow[FLHCState]:
        """Clients without a cluster train the joint model, and join the nearest mean update."""
        clients, apart = yield from self._to_means(state, ctx)
        return replace(
            state,
            labels=state.labels.index_copy(0, clients, apart.argmin(1)),
            placed=state.placed.index_fill(0, clients, True),
        )

    def _to_means(self, state: FLHCState, ctx: Context) -> Flow[tuple[Tensor, Tensor]]:
        """Which clients (N,) of the cohort answered, and how far their updates are: (N, K)."""
        theta = Rows(state.joint, torch.zeros_like(ctx.cohort))
        trained = yield from train(theta, ctx, self._local_then)
        # Buffers such as running statistics say nothing about where a client wants to go.
        update = trained.update[:, : state.means.shape[1]]
        return trained.clients, distances(update, state.means, self.metric)
