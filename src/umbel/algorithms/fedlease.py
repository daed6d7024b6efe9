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
    Traits,
    check_clustered,
    federate,
    in_largest,
    of_compared,
)
from umbel.checks import check, check_least
from umbel.client.routing import adapters_of, directions
from umbel.client.work import LocalTraining, Routed, Work
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context, Experts, Sample, train, train_experts
from umbel.server.cluster_test import REFERENCES, judge
from umbel.server.clusterers import best_by_silhouette
from umbel.server.clustering import agglomerate
from umbel.server.shares import within_shares


@dataclass(frozen=True)
class FedLEASEState(State):
    """During the warm-up each client has its own model; later each cluster has one, its expert."""

    pairs_in: ClassVar = ("compared", "distance")

    start: Tensor  # (1, P) the common start
    # (M,) number of examples of each client that has trained an adapter alone; 0: not yet
    examples: Tensor
    # (K, R) router of each cluster; (0, 0) before the clustering, or with one model
    routers: Tensor
    directions: Tensor  # (K, D) each cluster's B when it was clustered; (0, D) before
    compared: Tensor  # (N,) the clients of the next field, when they were clustered
    distance: Tensor  # (N, N) the distances between their adapters
    silhouette: float = 0.0  # of the clusters at that time
    # share of simulated sets of clients without groups that look as clearly grouped
    chance: float = 1.0


@dataclass(frozen=True)
class FedLEASE(Algorithm[FedLEASEState]):
    """Cluster clients by their adapters; then each client mixes all experts by its router.

    FedLEASE, Wang et al. 2025, for networks with low-rank adapters (`umbel.networks.LoRA`, or
    `peft`). In `warm_up` rounds each client alone trains an adapter, and all other trainable
    values, from a common start. Then the server clusters the distances d(i, j), the mean over
    adapters of 1 - cos(B_i, B_j), by average linkage; the mean of a cluster's models is its expert.
    After that, a client has all K experts and trains its own expert and a router; these are
    averaged within each cluster. A router's 2K - 1 logits stand for the own expert K times and for
    each other expert once; the softmax of the K largest gives the weights of the experts.

    As in the paper, the number of experts is the one with the largest silhouette. In the paper it
    is never 1. Here it is 1 unless the share of simulated sets of clients without groups that look
    as clearly grouped as these is below `level`; `level = 1` is the paper's rule. With one expert
    this is FedAvg.

    A client that missed the warm-up is served the model of the largest cluster. When it is next in
    a cohort, it trains an adapter from the common start, for as many epochs as the warm-up has and
    at its mean learning rate, and joins the cluster with the nearest B.
    """

    traits: ClassVar[Traits] = Traits(mixes_experts=True)

    warm_up: int = 5  #: rounds in which clients train alone
    num_clusters: int | None = None  #: M, the number of experts; None: by silhouette
    max_clusters: int = 8  #: largest number of experts that is considered
    #: there is one expert if such clear clusters appear without groups with at least this
    #: probability, which must be above 1/200; 1: never
    level: float = 0.05
    linkage: Literal["complete", "average", "single"] = "average"  #: distance between clusters
    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged

    def __post_init__(self) -> None:
        check_least(self, 1, "warm_up", "num_clusters")
        check_least(self, 2, "max_clusters")
        least = 1 / (1 + REFERENCES)
        why = f"with {REFERENCES} simulated sets no chance is smaller, so that there is one expert"
        check(least < self.level <= 1, "level", self.level, f"in ({least:g}, 1]: {why}")

    def check(self, known: Known) -> None:
        super().check(known)
        if known.layout is not None:
            adapters_of(known.layout)

    @property
    def sends(self) -> tuple[Work, ...]:
        most = self.num_clusters or self.max_clusters
        experts = (Routed(self.local, most),) if most > 1 else ()  # one expert mixes with none
        return self.local, self._long, *experts

    def init(self, setup: Setup) -> FedLEASEState:
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

    def members(self, state: FedLEASEState, kept: Tensor, setup: Setup) -> FedLEASEState:
        if not len(state.directions):
            found = super().members(state, kept, setup)
            return replace(found, labels=torch.arange(setup.num_clients))
        # Models are of clusters now.
        found = super().members(replace(state, models=state.models[:0]), kept, setup)
        return in_largest(replace(found, models=state.models), len(kept))

    def round(self, state: FedLEASEState, ctx: Context) -> Flow[FedLEASEState]:
        if not len(state.directions):
            # Without a single answer in the warm-up there is nothing to cluster: it goes on.
            if ctx.round < self.warm_up or not state.examples.any():
                return (yield from self._train_alone(state, ctx))
            state = self._cluster(state, ctx)
        # One expert has nothing to route to.
        if len(state.models) == 1:
            return (yield from federate(state, ctx, self.local, self.averaging))
        state = yield from self._admit(state, ctx)
        placed = ctx.cohort[state.examples[ctx.cohort] > 0]
        if not len(placed):
            return state
        experts = Experts(state.models, state.routers, state.moments)
        asked = replace(ctx, cohort=placed)
        after = yield from train_experts(experts, state.labels, asked, self.local, self.averaging)
        return replace(state, models=after.models, routers=after.routers, moments=after.moments)

    def serve(self, state: FedLEASEState, ctx: Context) -> Flow[Served]:
        """The model of the client's cluster, which mixes the cluster's expert with all others."""
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
        return of_compared(state.compared, distance=state.distance)

    def _train_alone(self, state: FedLEASEState, ctx: Context) -> Flow[FedLEASEState]:
        """A round of the warm-up: nothing is averaged."""
        asked = replace(ctx, use="stored")
        trained = yield from train(Rows(state.models, ctx.cohort), asked, self.local)
        return replace(
            state,
            models=state.models.index_add(0, trained.clients, trained.update),
            examples=state.examples.index_copy(0, trained.clients, trained.num_examples),
        )

    def _cluster(self, state: FedLEASEState, ctx: Context) -> FedLEASEState:
        """Cluster the clients that have trained; the mean of a cluster's models is its expert."""
        clients = torch.nonzero(state.examples)[:, 0]
        models = state.models[clients]
        pointing = directions(models, ctx.layout)
        with ctx.clustering:
            # d(i, j) = mean over adapters of 1 - cos(B_i, B_j): rows of `pointing` have unit
            # length.
            distance = (1 - pointing @ pointing.T).fill_diagonal_(0)
            labels, silhouette, chance = self._labels(pointing, distance, ctx.clustering_seed)
        sizes = torch.bincount(labels)
        count = len(sizes)
        weights = within_shares(state.examples[clients], labels, ctx.max_share)
        # Expert k: the mean of its clients' models, theta_0 + mean (theta_i - theta_0).
        sums = self.averaging.sums(models - state.start, labels, weights, count, clients)
        # A mean of first models, which a server's optimiser must not change.
        step = self.averaging.mean(sums, ctx.layout)
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
        """Clusters (N,) of clients, their silhouette, and its probability without groups."""
        if self.num_clusters is not None:
            # With fewer clients than clusters, each client is a cluster.
            number = min(self.num_clusters, len(distance))
            return agglomerate(distance, self.linkage, number), 0.0, 0.0
        labels, silhouette = best_by_silhouette(distance, self.linkage, self.max_clusters)
        # Two clients can't be told from a set without groups.
        chance = judge(pointing, self.max_clusters, seed)[1] if len(labels) > 2 else 1.0
        by_chance = chance >= self.level and self.level < 1
        return torch.zeros_like(labels) if by_chance else labels, silhouette, chance

    def _admit(self, state: FedLEASEState, ctx: Context) -> Flow[FedLEASEState]:
        """Clients without a cluster train an adapter alone, and join the nearest cluster."""
        late = ctx.cohort[state.examples[ctx.cohort] == 0]
        if not len(late):
            return state
        asked = ctx.asking(late, optional=True, use="compared")
        clients, apart, examples = yield from self._newcomers(state, asked)
        return replace(
            state,
            labels=state.labels.index_copy(0, clients, apart.argmin(1)),
            examples=state.examples.index_copy(0, clients, examples),
        )

    def _newcomers(self, state: FedLEASEState, ctx: Context) -> Flow[tuple[Tensor, Tensor, Tensor]]:
        """Have clients train alone: (N,) clients, (N, K) distances to clusters, (N,) examples."""
        theta = Rows(state.start, torch.zeros_like(ctx.cohort))
        trained = yield from train(theta, ctx, self._long)
        pointing = directions(state.start + trained.update, ctx.layout)
        return trained.clients, 1 - pointing @ state.directions.T, trained.num_examples

    @property
    def _long(self) -> LocalTraining:
        """Training alone by a newcomer: together, its steps are as long as those of the warm-up."""
        # Epochs and steps times the warm-up's rounds, at the mean of its learning rates.
        times = self.warm_up
        local = self.local.slowed(sum(map(self.local.factor, range(times))) / times)
        steps = None if local.steps is None else local.steps * times
        return replace(local, epochs=local.epochs * times, steps=steps)
