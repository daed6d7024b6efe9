"""FL+HC: Briggs, Fan & Andras, Federated learning with hierarchical clustering of local updates to
improve training on non-IID data, IJCNN 2020, Algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from umbel.algorithms.base import (
    Algorithm,
    Assigned,
    Setup,
    State,
    check_clustered,
    federate,
    of_compared,
    one_model,
)
from umbel.checks import check, check_least
from umbel.client.work import LocalTraining, Work
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging, cluster_mean
from umbel.server.ask import Context, Sample, train
from umbel.server.clustering import agglomerate, check_cut, distances
from umbel.server.repeated_rows import model_of_each


@dataclass(frozen=True)
class FLHCState(State):
    """One model until the clustering round, then one for each cluster."""

    pairs_in: ClassVar = ("compared", "distance")

    # (M,) bool: whether the cluster is known; True for all before the clustering round
    placed: Tensor
    joint: Tensor  # (1, P) the model of the clustering round; empty (0, P) before
    means: Tensor  # (K, W) mean update of each cluster in the clustering round; (0, W) before
    compared: Tensor  # (N,) the clients of the next field, in the clustering round
    distance: Tensor  # (N, N) the distances between their updates


@dataclass(frozen=True)
class FLHC(Algorithm[FLHCState]):
    """Cluster everyone's updates once, after some rounds of FedAvg; then average within clusters.

    FL+HC, Briggs et al. 2020. The first `cluster_round` rounds are FedAvg. The clustering round
    changes no model: all clients are asked, whatever the participation, and the clusters start from
    the joint model that was sent to them.

    A client that did not answer in that round is served the model of the largest cluster. When it
    is next in a cohort it trains the joint model instead, at the learning rate of the clustering
    round. It joins the cluster whose mean update is nearest to its update, which is not averaged
    into any model.
    """

    num_clusters: int | None = None  #: K; give either this or `threshold`
    threshold: float | None = None  #: clusters at this distance or farther are not merged
    cluster_round: int = 10  #: n, the number of rounds of FedAvg before the clustering round
    metric: Literal["l1", "l2", "cosine"] = "cosine"  #: distance between updates
    #: distance between clusters
    linkage: Literal["complete", "average", "single", "ward"] = "complete"
    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged

    def __post_init__(self) -> None:
        # There is no default: which distances are large depends on the data.
        check_cut(self.num_clusters, self.threshold)
        check_least(self, 0, "cluster_round")
        fine = self.linkage != "ward" or self.metric == "l2"
        check(fine, "metric", self.metric, '"l2", the only one that linkage "ward" is defined for')

    @property
    def sends(self) -> tuple[Work, ...]:
        return (self.local,)

    def init(self, setup: Setup) -> FLHCState:
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

    def members(self, state: FLHCState, kept: Tensor, setup: Setup) -> FLHCState:
        found = super().members(state, kept, setup)
        placed = found.placed.clone()
        placed[len(kept) :] = not len(state.joint)  # until the clustering nobody has to be placed
        return replace(found, placed=placed)

    def round(self, state: FLHCState, ctx: Context) -> Flow[FLHCState]:
        # `joint` is empty until the clustering: if nobody answered, the next round tries again.
        if ctx.round >= self.cluster_round and not len(state.joint):
            return (yield from self._cluster(state, replace(ctx.everyone, use="compared")))
        late = ctx.cohort[~state.placed[ctx.cohort]]
        known = ctx.asking(ctx.cohort[state.placed[ctx.cohort]])
        if len(late):
            # Clients without a cluster train the joint model, and join the nearest mean update.
            asked = ctx.asking(late, optional=True, use="compared")
            clients, apart = yield from self._to_means(state, asked)
            labels = state.labels.index_copy(0, clients, apart.argmin(1))
            placed = state.placed.index_fill(0, clients, True)
            state = replace(state, labels=labels, placed=placed)
        return (yield from federate(state, known, self.local, self.averaging))

    def assign(self, state: FLHCState, ctx: Context) -> Flow[Assigned]:
        check_clustered(len(state.joint) > 0, ", or a smaller cluster_round")
        clients, apart = yield from self._to_means(state, ctx)
        return Assigned(clients, apart, f"{self.metric} distance to the mean update")

    def evidence(self, state: FLHCState, sample: Sample) -> Mapping[str, Tensor]:  # noqa: ARG002
        return of_compared(state.compared, distance=state.distance)

    @property
    def _local_then(self) -> LocalTraining:
        """Local training for compared updates: always at the clustering round's learning rate."""
        return self.local.at_round(self.cluster_round)

    def _cluster(self, state: FLHCState, ctx: Context) -> Flow[FLHCState]:
        """Ask all clients for an update of the one model, and cluster those who answer."""
        trained = yield from train(Rows(state.models, state.labels), ctx, self._local_then)
        if not len(trained.clients):
            return state
        # Buffers such as running statistics carry no information about a client's direction.
        rows = trained.update[:, : ctx.layout.num_weights]
        # With fewer clients than clusters, each client is a cluster.
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
            models=model_of_each(state.models, len(sizes)),
            moments=tuple(model_of_each(each, len(sizes)) for each in state.moments),
            labels=largest.index_copy(0, trained.clients, clusters),
            placed=placed,
            joint=state.models,
            # Late clients are compared with these: each client counts once, however many examples
            # it has.
            means=cluster_mean(rows, clusters, torch.ones_like(clusters), len(sizes)),
            compared=trained.clients[shown],
            distance=apart[shown][:, shown].float(),
        )

    def _to_means(self, state: FLHCState, ctx: Context) -> Flow[tuple[Tensor, Tensor]]:
        """The clients (N,) that answered, and distances (N, K) of their updates to mean updates."""
        theta = Rows(state.joint, torch.zeros_like(ctx.cohort))
        trained = yield from train(theta, ctx, self._local_then)
        # Buffers such as running statistics carry no information about a client's direction.
        update = trained.update[:, : state.means.shape[1]]
        return trained.clients, distances(update, state.means, self.metric)
