"""FedLEASE: Wang et al., Adaptive LoRA experts allocation and selection for federated fine-tuning,
NeurIPS 2025 (arXiv 2509.15087)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor

from umbel.algorithms.base import (
    Algorithm,
    Assigned,
    Known,
    Served,
    Setup,
    State,
    check_clustered,
    federate,
)
from umbel.algorithms.fitting import check_num_clusters
from umbel.checks import check
from umbel.client.routing import adapters_of, directions
from umbel.client.work import LocalTraining
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context, Experts, Sample, train, train_experts
from umbel.server.cluster_test import judge
from umbel.server.clustering import agglomerate
from umbel.server.shares import within_shares
from umbel.server.silhouettes import best_by_silhouette


@dataclass(frozen=True)
class FedLEASEState(State):
    """In the warm-up every client has a model of its own; then one a cluster, its expert."""

    start: Tensor  # (1, P) the common start
    examples: Tensor  # (M,) of each client that has trained an adapter alone; 0: it has not yet
    routers: Tensor  # (K, R) of each cluster; (0, 0) where there is one model, or before
    directions: Tensor  # (K, D) where each cluster's adapter pointed at first; (0, D) before
    compared: Tensor  # (N,) the clients that the next field is about, as of the clustering
    distance: Tensor  # (N, N) how far apart their adapters were
    silhouette: float = 0.0  # of the clusters then
    chance: float = 1.0  # share of sets of clients without groups that look as grouped


@dataclass(frozen=True)
class FedLEASE(Algorithm[FedLEASEState]):
    """Cluster clients by their adapters; then each mixes all clusters' experts by its router.

    FedLEASE, Wang et al. 2025, for networks with low-rank adapters (`umbel.networks.LoRA`, or
    `peft`). In `warm_up` rounds each client trains an adapter and what else is trained by itself,
    from a common start. Then the server clusters d(i, j), the mean over adapters of
    1 - cos(B_i, B_j), by average linkage; the mean of a cluster's models is its expert. From there
    on a client has all K experts, trains its own beside a router, and what the clients of a cluster
    train is averaged. A router's 2K - 1 logits stand for the own expert K times and for each of the
    others once; the softmax of the K largest weighs the experts.

    The number of experts is that of the largest silhouette, as in the paper, where it is never 1.
    Here it is 1 unless a share below `level` of made-up sets of clients without groups looks as
    grouped as these; `level = 1` is the paper's rule. With one expert this is FedAvg.

    A client that took no part in the warm-up is served the largest cluster's model. When it is next
    in a cohort, it trains an adapter from the common start, for as many epochs as the warm-up has,
    and joins the cluster whose B is nearest.
    """

    mixes_experts: ClassVar[bool] = True

    warm_up: int = 5  #: rounds in which clients train alone
    num_clusters: int | None = None  #: M, the experts; None: by silhouette
    max_clusters: int = 8  #: most experts that are considered
    #: chance of as clear clusters without groups, from which on there is one expert; 1: never
    level: float = 0.05
    linkage: Literal["complete", "average", "single"] = "average"  #: distance between clusters
    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged

    def __post_init__(self) -> None:
        check(self.warm_up >= 1, "warm_up", self.warm_up, "1 or more")
        number = self.num_clusters
        check(number is None or number >= 1, "num_clusters", number, "1 or more")
        check(self.max_clusters >= 2, "max_clusters", self.max_clusters, "2 or more")
        check(0 < self.level <= 1, "level", self.level, "in (0, 1]")

    def check(self, known: Known) -> None:
        super().check(known)
        check_num_clusters(self.num_clusters, known)
        if known.layout is not None:
            adapters_of(known.layout)

    def init(self, setup: Setup) -> FedLEASEState:
        check_num_clusters(self.num_clusters, setup)
        setup.warn_if_shorter(self.warm_up + 1, "warm_up", "clusters its clients")
        everyone, models = torch.arange(setup.num_clients), setup.copies(setup.num_clients)
        start = models[:1].clone()
        return FedLEASEState(
            models=models,
            labels=everyone,
            start=start,
            examples=torch.zeros_like(everyone),
            routers=start.new_zeros(0, 0),
            directions=directions(start, setup.layout)[:0],
            compared=everyone[:0],
            distance=start.new_zeros(0, 0),
        )

    def round(self, state: FedLEASEState, ctx: Context) -> Flow[FedLEASEState]:
        if not len(state.directions):
            if ctx.round < self.warm_up or not state.examples.any():
                return (yield from self._train_alone(state, ctx))
            state = self._cluster(state, ctx)
        if len(state.models) == 1:
            return (yield from federate(state, ctx, self.local, self.averaging))
        state = yield from self._admit(state, ctx)
        placed = ctx.cohort[state.examples[ctx.cohort] > 0]
        if not len(placed):
            return state
        experts = Experts(state.models, state.routers)
        asked = replace(ctx, cohort=placed)
        after = yield from train_experts(experts, state.labels, asked, self.local, self.averaging)
        return replace(state, models=after.models, routers=after.routers)

    def serve(self, state: FedLEASEState, ctx: Context) -> Flow[Served]:
        """The model of the client's cluster, which mixes its expert with all others."""
        if not state.routers.numel():
            return (yield from super().serve(state, ctx))
        labels = state.labels[ctx.cohort]
        whole = Experts(state.models, state.routers).whole(ctx.layout)
        plain = Rows(state.models, labels)
        return Served(Rows(whole, labels), labels, adapted_from=plain, experts=len(whole))

    def assign(self, state: FedLEASEState, ctx: Context) -> Flow[Assigned]:
        check_clustered(len(state.directions) > 0, ", or a smaller warm_up")
        clients, apart, _ = yield from self._newcomers(state, ctx)
        return Assigned(clients, apart, "cosine distance of B to the cluster's")

    def measure(self, state: FedLEASEState) -> Mapping[str, float]:
        if not len(state.directions) or self.num_clusters is not None:
            return {}
        return {"silhouette": state.silhouette, "chance": state.chance}

    def evidence(self, state: FedLEASEState, sample: Sample) -> Mapping[str, Tensor]:  # noqa: ARG002
        if not len(state.compared):
            return {}
        return {"clients": state.compared, "distance": state.distance}

    def _train_alone(self, state: FedLEASEState, ctx: Context) -> Flow[FedLEASEState]:
        """A round of the warm-up: nothing is averaged."""
        trained = yield from train(Rows(state.models, ctx.cohort), ctx, self.local)
        return replace(
            state,
            models=state.models.index_add(0, trained.clients, trained.update),
            examples=state.examples.index_copy(0, trained.clients, trained.num_examples),
        )

    def _cluster(self, state: FedLEASEState, ctx: Context) -> FedLEASEState:
        """Cluster those who have trained; each cluster's expert is the mean of its members'."""
        clients = torch.nonzero(state.examples)[:, 0]
        models = state.models[clients]
        pointing = directions(models, ctx.layout)
        with ctx.clustering:
            distance = (1 - pointing @ pointing.T).fill_diagonal_(0)
            labels, silhouette, chance = self._labels(pointing, distance, ctx.clustering_seed)
        sizes = torch.bincount(labels)
        count = len(sizes)
        weights = within_shares(state.examples[clients], labels, ctx.max_share)
        step = self.averaging.step(models - state.start, labels, weights, count, ctx.layout)
        experts = Experts.new(state.start + step, ctx.layout, ctx.clustering_seed)
        largest, shown = sizes.argmax().expand(ctx.num_clients), ctx.sample(len(clients))
        return replace(
            state,
            models=experts.models,
            labels=largest.index_copy(0, clients, labels),
            routers=experts.routers if count > 1 else state.routers,
            directions=directions(experts.models, ctx.layout),
            compared=clients[shown],
            distance=distance[shown][:, shown].float(),
            silhouette=silhouette,
            chance=chance,
        )

    def _labels(self, pointing: Tensor, distance: Tensor, seed: int) -> tuple[Tensor, float, float]:
        """Clusters (N,) of clients, their silhouette, and how likely they would be by chance."""
        if self.num_clusters is not None:
            # Fewer clients than clusters are a cluster each.
            number = min(self.num_clusters, len(distance))
            return agglomerate(distance, self.linkage, number), 0.0, 0.0
        labels, silhouette = best_by_silhouette(distance, self.linkage, self.max_clusters)
        chance = judge(pointing, self.max_clusters, seed)[1] if len(labels) > 2 else 1.0
        by_chance = chance >= self.level and self.level < 1
        return torch.zeros_like(labels) if by_chance else labels, silhouette, chance

    def _admit(self, state: FedLEASEState, ctx: Context) -> Flow[FedLEASEState]:
        """Clients of the cohort without a cluster train an adapter alone, and join the nearest."""
        late = ctx.cohort[state.examples[ctx.cohort] == 0]
        if not len(late):
            return state
        asked = ctx.asking(late, optional=True)
        clients, apart, examples = yield from self._newcomers(state, asked)
        return replace(
            state,
            labels=state.labels.index_copy(0, clients, apart.argmin(1)),
            examples=state.examples.index_copy(0, clients, examples),
        )

    def _newcomers(self, state: FedLEASEState, ctx: Context) -> Flow[tuple[Tensor, Tensor, Tensor]]:
        """Clients that train alone: who, distances (N, K) to the clusters, numbers of examples."""
        local, times = self.local.at_round(0), self.warm_up
        steps = None if local.steps is None else local.steps * times
        long = replace(local, epochs=local.epochs * times, steps=steps)
        theta = Rows(state.start, torch.zeros_like(ctx.cohort))
        trained = yield from train(theta, ctx, long)
        pointing = directions(state.start + trained.update, ctx.layout)
        return trained.clients, 1 - pointing @ state.directions.T, trained.num_examples
