"""FedGroup: Duan et al., FedGroup: Efficient clustered federated learning via decomposed
data-driven measure, arXiv 2010.06870."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import numpy as np
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
from umbel.checks import check_least
from umbel.client.work import LocalTraining, Work
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging, cluster_mean
from umbel.server.ask import Context, Sample, Trained, train
from umbel.server.clustering import (
    agglomerate,
    cosine_similarity,
    distances,
    k_means,
    leading_projection,
)
from umbel.server.shares import norms_of, within_shares


@dataclass(frozen=True)
class FedGroupState(State):
    """One model until the first clients are grouped, then one for each group."""

    pairs_in: ClassVar = ("compared", "similarity")

    placed: Tensor  # (M,) bool: whether the client's group is known
    origin: Tensor  # (1, P) the model that each client trains first
    directions: Tensor  # (K, W) mean first update of each group's first clients; (0, W) before
    compared: Tensor  # (N,) the clients of the next field
    similarity: Tensor  # (N, N) the cosines of their first updates


@dataclass(frozen=True)
class FedGroup(Algorithm[FedGroupState]):
    """Group clients by the directions of their first updates, each when it is first asked.

    Duan et al., arXiv 2010.06870. In round 0, `per_cluster` K clients, drawn at random, train the
    first model for `first_steps` steps, and are grouped by their updates Delta_i. "edc": k-means of
    the cosines (N, K) of Delta_i and the K leading right singular vectors of all updates. "madc":
    hierarchical clustering, complete linkage, by the means over z of |cos(Delta_i, Delta_z) -
    cos(Delta_j, Delta_z)|. A group starts from the mean of its clients' models, and its direction
    is the mean of their updates.

    Any other client trains the first model when it is first in a cohort, and joins the group with
    the smallest (1 - cos(Delta_i, direction)) / 2. Rounds are FedAvg within groups. Clients never
    asked are served the largest group's model. If fewer than K of the first clients answer, the
    next round begins anew. With `migrate` (FlexCFL, Duan et al., arXiv 2108.09749), each client
    trains the first model again when it is first asked in a step of time, and joins anew: the
    authors do so when a client's shares of labels have changed, which the server is not told here.
    Their steps towards the other groups' models are not included.
    """

    num_clusters: int = 3  #: K, the number of groups
    per_cluster: int = 20  #: alpha: the first groups are of `per_cluster` K clients, at most all
    first_steps: int = 50  #: mini-batches by which a client trains the first model
    metric: Literal["edc", "madc"] = "edc"  #: how first updates are compared
    migrate: bool = False  #: whether clients join a group anew at each step of time
    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged

    def __post_init__(self) -> None:
        check_least(self, 1, "num_clusters", "per_cluster", "first_steps")

    @property
    def sends(self) -> tuple[Work, ...]:
        return self.local, self._first

    def init(self, setup: Setup) -> FedGroupState:
        first = one_model(setup)
        return FedGroupState(
            first.models,
            first.labels,
            placed=torch.zeros(setup.num_clients, dtype=torch.bool),
            origin=first.models,
            directions=first.models[:0, : setup.layout.num_weights],
            compared=first.labels[:0],
            similarity=first.models.new_zeros(0, 0),
        )

    def round(self, state: FedGroupState, ctx: Context) -> Flow[FedGroupState]:
        if not len(state.directions):
            state = yield from self._first_groups(state, ctx)
        elif self.migrate and ctx.begins and ctx.step:
            state = replace(state, placed=torch.zeros_like(state.placed))
        late = ctx.cohort[~state.placed[ctx.cohort]]
        if len(state.directions) and len(late):
            asked = ctx.asking(late, optional=True, use="compared")
            clients, apart = yield from self._to_groups(state, asked)
            labels = state.labels.index_copy(0, clients, apart.argmin(1))
            placed = state.placed.index_fill(0, clients, True)
            state = replace(state, labels=labels, placed=placed)
        known = ctx.asking(ctx.cohort[state.placed[ctx.cohort]])
        return (yield from federate(state, known, self.local, self.averaging))

    def assign(self, state: FedGroupState, ctx: Context) -> Flow[Assigned]:
        check_clustered(len(state.directions) > 0)
        clients, apart = yield from self._to_groups(state, ctx)
        return Assigned(clients, apart, "half the cosine distance to the group's direction")

    def evidence(self, state: FedGroupState, sample: Sample) -> Mapping[str, Tensor]:  # noqa: ARG002
        return of_compared(state.compared, similarity=state.similarity)

    @property
    def _first(self) -> LocalTraining:
        """How clients train the first model: always at the first round's learning rate."""
        return replace(self.local, steps=self.first_steps).at_round(0)

    def _first_updates(self, state: FedGroupState, ctx: Context) -> Flow[Trained]:
        return (yield from train(Rows(state.origin, 0 * ctx.cohort), ctx, self._first))

    def _first_groups(self, state: FedGroupState, ctx: Context) -> Flow[FedGroupState]:
        rng = np.random.default_rng(ctx.clustering_seed)
        size = min(self.per_cluster * self.num_clusters, ctx.num_clients)
        drawn = torch.from_numpy(rng.choice(ctx.num_clients, size, replace=False))
        trained = yield from self._first_updates(state, ctx.asking(drawn))
        if len(trained.clients) < self.num_clusters:
            return state
        rows = trained.update[:, : ctx.layout.num_weights]
        with ctx.clustering:
            cosines = cosine_similarity(rows)
            groups = self._grouped(rows, cosines, ctx.clustering_seed)
        sizes, shown = torch.bincount(groups), ctx.sample(len(rows))
        weights = within_shares(trained.num_examples, groups, ctx.max_share)
        sums = self.averaging.sums(trained.update, groups, weights, len(sizes), trained.clients)
        # A mean of first models, which a server's optimiser must not change.
        step = self.averaging.mean(sums, ctx.layout)
        largest = sizes.argmax().expand(ctx.num_clients)
        return FedGroupState(
            models=state.origin + step,
            labels=largest.index_copy(0, trained.clients, groups),
            placed=state.placed.index_fill(0, trained.clients, True),
            origin=state.origin,
            directions=cluster_mean(rows, groups, torch.ones_like(groups), len(sizes)),
            compared=trained.clients[shown],
            similarity=cosines[shown][:, shown].float(),
        )

    def _grouped(self, rows: Tensor, cosines: Tensor, seed: int) -> Tensor:
        """The groups (N,) of first updates (N, W)."""
        if self.metric == "madc":
            # The sum over z has the terms z = i and z = j, each 1 - cos(i, j), which do not count.
            others = max(1, len(rows) - 2)
            apart = (distances(cosines, cosines, "l1") - 2 * (1 - cosines)).clamp(min=0) / others
            return agglomerate(apart.fill_diagonal_(0), "complete", self.num_clusters)
        # cos(Delta_i, v_k) is the projection of Delta_i on v_k, divided by the length of Delta_i.
        lengths = norms_of(rows).clamp(min=torch.finfo(torch.double).tiny)
        along = leading_projection(rows, self.num_clusters, seed) / lengths[:, None]
        return k_means(along, self.num_clusters, seed)

    def _to_groups(self, state: FedGroupState, ctx: Context) -> Flow[tuple[Tensor, Tensor]]:
        """The clients (N,) that answered, and the distances (N, K) of their first updates."""
        trained = yield from self._first_updates(state, ctx)
        rows = trained.update[:, : ctx.layout.num_weights]
        return trained.clients, distances(rows, state.directions, "cosine") / 2
