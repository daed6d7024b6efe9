"""CFL-GP: Kim et al., Clustered federated learning via gradient-based partitioning, ICML 2024,
Algorithms 1 to 5."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil, inf
from typing import ClassVar, Literal

import numpy as np
import torch
from torch import Tensor

from umbel.algorithms.base import (
    OPEN,
    Algorithm,
    Assigned,
    Known,
    Setup,
    State,
    Traits,
    check_clustered,
    check_clusters,
)
from umbel.checks import check, check_least
from umbel.client.work import Feature, Gradient, LocalTraining, Quantised, Work
from umbel.client.work.local_training import check_plain_steps
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.ask import (
    Context,
    Features,
    Gradients,
    Sample,
    Trained,
    features,
    gradients,
    train,
)
from umbel.server.clustering import k_means, leading_projection, projection_by
from umbel.server.features import (
    allowed,
    drawn,
    moved,
    no_features,
    no_products,
    products_after,
    side_by_side,
    to_means,
)
from umbel.server.numbering import match_labels
from umbel.server.shares import within_norms

SHOWN_VALUES = 20
"""Number of singular values saved as evidence."""

MEANING = "distance to the mean gradient feature"


@dataclass(frozen=True)
class CFLGPState(State):
    # K of (M, J): mean of each client's answers for each model, 0 before any; a round replaces one
    features: tuple[Tensor, ...]
    # (K, M, M) double: inner products of the features, by model; (K, 0, 0) if that is too large
    products: Tensor
    counts: Tensor  # (M, K) int64: how often each client answered for each model
    coordinates: Tensor  # (J,) int64: positions of the values of a gradient that are features
    anchors: Tensor  # (K, P) mean of each model over the rounds in which all clients got it
    queries: int  # number of rounds in which a model was sent to all clients
    last_change: int  # the last round in which a client changed its cluster
    stopped: bool  # whether the clustering has ended


@dataclass(frozen=True)
class CFLGP(Algorithm[CFLGPState]):
    """Average each client's gradients on the same models over time, and cluster the averages.

    Kim et al. 2024, Algorithms 1, 3 and 4. The first clusters are random and balanced, unless they
    are given. Each round, clients send the gradient of their cluster's model (Algorithm 1), or the
    update by local training (Algorithm 4). Every `period` rounds the next of the models in turn is
    sent to all clients, whatever the participation. Each client answers for that model too, and
    Algorithm 3 clusters the running means, until no cluster has changed for `patience` rounds, or
    for a fixed number of rounds (`until_round`).

    A client that does not answer keeps its feature and its cluster, and is left out of the
    clustering until it has answered for every model that was sent. If the clustering has ended by
    then, it is assigned like a newcomer. `reduction` combines gradients into a step: line 4 sums
    them, but the experiments' learning rate is meant for the mean. A newcomer answers for each
    model's average over the rounds in which it was sent to all, which gives the newcomer's feature
    exactly if losses are quadratic and learning rates do not decay. It joins the cluster with the
    nearest mean feature.
    """

    traits: ClassVar[Traits] = Traits(only_trains=None)

    num_clusters: int = 2  #: K
    send: Literal["gradient", "update"] = "gradient"  #: "gradient": Algorithm 1; "update": 4
    #: the gradient that clients send
    gradient: Gradient = field(default_factory=lambda: Gradient(64))
    #: how clients train; `lr` is the learning rate of Algorithm 1, too
    local: LocalTraining = field(default_factory=LocalTraining)
    #: how updates are averaged
    averaging: Averaging = field(default_factory=lambda: Averaging("equal"))
    reduction: Literal["mean", "sum"] = "mean"  #: how gradients are combined into a step
    period: int = 1  #: P: a model is sent to all clients once in this many rounds
    beta: Literal["running-mean", "latest"] = "running-mean"  #: F.1: "latest" is beta = 1
    #: clustering ends after this many rounds without a change; None: a tenth of all rounds
    patience: int | None = None
    #: T_cl: no clustering in this round, counted from 0, and later; None: `patience` ends it
    until_round: int | None = None
    compression: float = 1.0  #: features keep one in this many values, drawn at random (E.1)
    #: patterns of the parameters that features consist of; (): all
    parameters: tuple[str, ...] = ()
    digits: int | None = None  #: decimal places that clients send (E.1); None: all
    #: the first cluster of each client, in the order of the federation; (): random and balanced
    clusters: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check_least(self, 1, "num_clusters", "period", "patience")
        last, once = self.until_round, self.until_round is None or self.patience is None
        first = 1 % self.period
        check(
            last is None or last > first, "until_round", last, f"above {first}, to cluster at all"
        )
        check(once, "until_round", last, "allowed with patience: give one of the two")
        check_plain_steps(self.local, self.send)
        check_least(self, 1, "compression")
        summed = self.reduction == "sum" and self.send == "update"
        check(not summed, "reduction", self.reduction, '"mean", which send "update" needs')
        plain = self.reduction == "mean" or self.averaging == Averaging("equal")
        check(plain, "averaging", self.averaging, 'Averaging("equal"), which sums need')
        fine = all(0 <= number < self.num_clusters for number in self.clusters)
        check(fine, "clusters", self.clusters, f"numbers of 0 to {self.num_clusters - 1}")
        if self.digits is not None:
            Quantised(self.gradient, self.digits)  # raises for settings that are not allowed

    def check(self, known: Known) -> None:
        super().check(known)
        check_clusters(self.clusters, known)
        if known.layout is not None:
            allowed(known.layout, self.parameters)

    @property
    def sends(self) -> tuple[Work, ...]:
        work: Work = self.gradient if self.send == "gradient" else self.local
        work = work if self.digits is None else Quantised(work, self.digits)
        return work, Feature(work)

    def init(self, setup: Setup) -> CFLGPState:
        ends = setup.num_rounds < OPEN or self.until_round is not None
        expected = 'a number with rounds = "until-stopped": by default it is a tenth of the rounds'
        check(ends or self.patience is not None, "patience", self.patience, expected)
        rng = np.random.default_rng(setup.seed)
        count, clients = self.num_clusters, setup.num_clients
        models = setup.new_models(count, self.averaging.shared)
        # One cluster needs no features.
        compression = self.compression if count > 1 else inf
        coordinates = drawn(allowed(setup.layout, self.parameters), compression, rng)
        size = len(coordinates)
        # K initial clusters of equal size, give or take one client.
        balanced = torch.from_numpy(rng.permutation(np.arange(clients) % count))
        return CFLGPState(
            models=models,
            labels=torch.tensor(self.clusters) if self.clusters else balanced,
            features=no_features(models, clients, size),
            products=no_products(count, clients, size),
            counts=torch.zeros(clients, count, dtype=torch.long),
            coordinates=coordinates,
            anchors=torch.zeros_like(models),
            queries=0,
            last_change=0,
            stopped=count == 1,
        )

    def members(self, state: CFLGPState, kept: Tensor, setup: Setup) -> CFLGPState:
        found = super().members(state, kept, setup)
        count, size = len(found.labels), len(state.coordinates)
        products = no_products(self.num_clusters, count, size)
        for turn, block in enumerate(found.features):
            products = products_after(products, block, turn)
        return replace(found, products=products)

    def admit(self, state: CFLGPState, ctx: Context) -> Flow[CFLGPState]:
        if not self._sent(state) or not _complete(state).any():
            return state
        return (yield from self._place(state, ctx))

    def round(self, state: CFLGPState, ctx: Context) -> Flow[CFLGPState]:
        # Line 5: clusters are updated only while t < T_cl.
        if self.until_round is not None and ctx.round >= self.until_round:
            state = replace(state, stopped=True)
        late = ctx.cohort[~_complete(state)[ctx.cohort]]
        if state.stopped and self._sent(state) and len(late):
            state = yield from self._place(state, ctx.asking(late, optional=True))
        mean, answered = yield from self._model_update(state, ctx)
        step, moments = self.averaging.advance(mean, answered, ctx.layout, state.moments)
        # Line 5: t mod P = 1, in round 1, 1 + period, ...; in every round if the period is 1.
        if not state.stopped and ctx.round % self.period == 1 % self.period:
            # Lines 6 to 10 speak of the models before this round's step.
            state = yield from self._cluster_update(state, ctx)
        return replace(state, models=state.models + step, moments=moments)

    def assign(self, state: CFLGPState, ctx: Context) -> Flow[Assigned]:
        if not self._sent(state) or not _complete(state).any():
            check_clustered(self.num_clusters == 1, ", or a smaller period")
            return Assigned(ctx.cohort, torch.zeros(len(ctx.cohort), 1), MEANING)
        clients, blocks = yield from self._at_anchors(state, ctx)
        return Assigned(clients, self._to_means(state, blocks), MEANING)

    def profile(self, state: CFLGPState) -> Tensor:
        return side_by_side(state.features, _complete(state))

    def evidence(self, state: CFLGPState, sample: Sample) -> Mapping[str, Tensor]:
        """The projections that Algorithm 3 clusters by k-means, and more singular values."""
        whole = torch.nonzero(_complete(state))[:, 0]
        clients = whole[sample(len(whole))]
        if not len(clients):
            return {}
        rank = max(SHOWN_VALUES, self.num_clusters)
        projected = _projection(state, clients, rank, seed=0)
        return {
            "clients": clients,
            "features": projected[:, : self.num_clusters].float(),
            "singular_values": projected[:, :SHOWN_VALUES].norm(dim=0),
        }

    def measure(self, state: CFLGPState) -> Mapping[str, float]:
        return {"queries": state.queries, "last_change": state.last_change}

    def _model_update(self, state: CFLGPState, ctx: Context) -> Flow[tuple[Tensor, Tensor]]:
        """Lines 2 to 4 of Algorithm 1 or 4: each model's mean step (K, P), if it has any (K,)."""
        theta = Rows(state.models, state.labels[ctx.cohort])
        if self.send == "update":
            trained = yield from train(theta, ctx, self.local, self.digits)
            return self._mean(trained.update, trained, state, ctx, scale=1.0)
        sent = yield from gradients(theta, ctx, self.gradient, self.digits)
        # Line 4: theta_k <- theta_k - gamma sum_c grad f(X_c, theta_k), over the clients c of
        # cluster k.
        scale = -self.local.at_round(ctx.round).lr
        mean, answered = self._mean(sent.gradient, sent, state, ctx, scale)
        if self.reduction == "sum":
            # A mean times the number of its clients is the sum of line 4.
            mean = mean * torch.bincount(state.labels[sent.clients], minlength=len(mean))[:, None]
        return scale * mean, answered

    def _mean(
        self, moves: Tensor, of: Trained | Gradients, state: CFLGPState, ctx: Context, scale: float
    ) -> tuple[Tensor, Tensor]:
        """Means (K, P) of these clients' rows, by cluster, and which clusters have any (K,)."""
        labels, count = state.labels[of.clients], self.num_clusters
        sums = self.averaging.sums(moves, labels, of.num_examples, count, of.clients)
        mean = self.averaging.mean(sums, ctx.layout, state.moments, scale)
        return mean, sums.weights > 0

    def _cluster_update(self, state: CFLGPState, ctx: Context) -> Flow[CFLGPState]:
        """Lines 6 to 10: one model is sent to all, and the running means are clustered again."""
        # Line 6: the models take turns.
        turn = state.queries % self.num_clusters
        local = self.local.at_round(ctx.round)
        # Line 7: all clients send the gradient of that model.
        answer = yield from self._features(state.models[turn], state, ctx.everyone, local)
        if not len(answer.clients):  # nobody answered, which a quorum of 0 allows
            return state
        # Line 8: g_c,k <- (1 - beta) g_c,k + beta grad f(X_c, theta_k), where beta is 1 / (how
        # often c has answered for k). The paper's 1 / (floor(t / KP) + 1) is the same if every
        # client answers.
        counts = state.counts.clone()
        counts[answer.clients, turn] += 1
        rate = 1 / counts[answer.clients, turn].to(answer.feature.dtype)
        rate = rate if self.beta == "running-mean" else torch.ones_like(rate)
        features = list(state.features)
        features[turn] = moved(features[turn], answer, rate)
        anchors = state.anchors.clone()
        decayed = self._decayed(turn, state.queries + 1)
        # In linear approximation, updates are proportional to the learning rate.
        weight = decayed[-1] / sum(decayed) if self.beta == "running-mean" else 1.0
        anchors[turn] += weight * (state.models[turn] - anchors[turn])
        with ctx.clustering:
            products = products_after(state.products, features[turn], turn)
            held = replace(state, features=tuple(features), products=products, counts=counts)
            after = replace(held, anchors=anchors, queries=state.queries + 1)
            return self._clustered(after, answer.clients, ctx)

    def _clustered(self, state: CFLGPState, answered: Tensor, ctx: Context) -> CFLGPState:
        """Line 10: run Algorithm 3 over the clients whose features are complete."""
        whole = torch.nonzero(_complete(state))[:, 0]
        if len(whole) < self.num_clusters:
            return state
        # Algorithm 3, line 1: U^T g_c (N, K), where U has the K leading singular vectors of G.
        projected = _projection(state, whole, self.num_clusters, ctx.clustering_seed)
        # Line 2: k-means with K means.
        clusters = k_means(projected, self.num_clusters, ctx.clustering_seed)
        # Lines 3 and 4: numbers for the clusters with which the most clients keep theirs.
        labels = state.labels.clone()
        labels[whole] = match_labels(clusters, labels[whole], self.num_clusters)
        # Clients that did not answer now keep their cluster, though their features count.
        silent = torch.ones_like(labels, dtype=torch.bool).index_fill_(0, answered, False)
        labels = torch.where(silent, state.labels, labels)
        if not torch.equal(labels, state.labels):
            return replace(state, labels=labels, last_change=ctx.round)
        if self.until_round is not None:
            return state
        patience = self.patience or ceil(ctx.num_rounds / 10)
        return replace(state, stopped=ctx.round - state.last_change >= patience)

    def _place(self, state: CFLGPState, ctx: Context) -> Flow[CFLGPState]:
        """Assign the clients that were not clustered before clustering ended, like newcomers."""
        clients, blocks = yield from self._at_anchors(state, ctx)
        features, products, counts = [*state.features], state.products, state.counts.clone()
        for turn, block in enumerate(blocks):
            held = within_norms(block, features[turn][_complete(state)], ctx.max_norm_ratio)
            features[turn] = features[turn].index_copy(0, clients, held)
            products = products_after(products, features[turn], turn)
            counts[clients, turn] = counts[clients, turn].clamp(min=1)
        labels = state.labels.index_copy(0, clients, self._to_means(state, blocks).argmin(1))
        if not torch.equal(labels, state.labels):
            state = replace(state, labels=labels, last_change=ctx.round)
        return replace(state, features=tuple(features), products=products, counts=counts)

    def _sent(self, state: CFLGPState) -> int:
        """The number of models that have been sent to all clients."""
        return min(state.queries, self.num_clusters)

    def _at_anchors(self, state: CFLGPState, ctx: Context) -> Flow[tuple[Tensor, list[Tensor]]]:
        """The clients (N,) that answered for the models' averages, and answers (N, J) by model."""
        answers = []
        for turn, anchor in enumerate(state.anchors[: self._sent(state)]):
            decayed = self._decayed(turn, state.queries)
            # The features are means over rounds with different learning rates: one answer at the
            # mean of these rates is comparable.
            share = decayed[-1] if self.beta == "latest" else sum(decayed) / len(decayed)
            local = self.local.slowed(share)
            answers.append((yield from self._features(anchor, state, ctx, local)))
        # A client that missed one of the models has no whole feature.
        here = set.intersection(*(set(answer.clients.tolist()) for answer in answers))
        clients = torch.tensor(sorted(here), dtype=torch.long)
        return clients, [each.feature[torch.isin(each.clients, clients)] for each in answers]

    def _to_means(self, state: CFLGPState, blocks: list[Tensor]) -> Tensor:
        """Distances (N, K) of features to each cluster's mean over clients that were clustered."""
        known = torch.nonzero(_complete(state))[:, 0]
        theirs = torch.cat([block[known] for block in state.features[: len(blocks)]], dim=1)
        mine, labels = torch.cat(blocks, dim=1), state.labels[known]
        return to_means(mine, theirs, labels, self.num_clusters)

    def _features(
        self, theta: Tensor, state: CFLGPState, ctx: Context, local: LocalTraining
    ) -> Flow[Features]:
        work = self.gradient if self.send == "gradient" else local
        return (yield from features(theta, state.coordinates, ctx, work, self.digits))

    def _decayed(self, turn: int, queries: int) -> list[float]:
        """Factors of the learning rate's decay at each time when this model was sent to all.

        Gradients do not depend on the learning rate, so their factors are 1.
        """
        first = 1 % self.period
        asked = [first + self.period * n for n in range(turn, queries, self.num_clusters)]
        return [self.local.factor(n) if self.send == "update" else 1.0 for n in asked]


def _complete(state: CFLGPState) -> Tensor:
    """Return (M,) bool: the clients that have answered for every model that was sent to all."""
    return (state.counts > 0)[:, : max(1, state.queries)].all(1)


def _projection(state: CFLGPState, clients: Tensor, rank: int, seed: int) -> Tensor:
    """The features of these clients, projected on their leading singular vectors: (N, R)."""
    # G^T G (M, M) is the sum of its blocks, and has the same right singular vectors as G (K J, M).
    if state.products.numel():
        return projection_by(state.products.sum(0)[clients][:, clients], rank)
    rows = torch.cat([block[clients] for block in state.features], dim=1)
    return leading_projection(rows, rank, seed)
