"""LCFL: Gu et al., LCFL: a loss-based clustered federated learning framework, 2024, Algorithm 1."""

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
    Traits,
    check_clustered,
    check_num_clusters,
    federate,
    in_largest,
    of_compared,
    renumbered,
)
from umbel.checks import check, check_least
from umbel.client.layout import Layout
from umbel.client.work import Gradient, LocalTraining, MeanLoss, TrainAndGradient, Work
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context, Sample, losses, own_loss, train, train_with_gradient
from umbel.server.clusterers import Clusterer, KMedoids, clusters_by, joined, medoids, parted
from umbel.server.clustering import distances, loss_distance
from umbel.server.repeated_rows import model_of_each
from umbel.server.shares import within_shares
from umbel.summary import in_short

Metric = Literal["loss", "loss-gap", "parameters", "gradient", "update"]


@dataclass(frozen=True)
class LCFLState(State):
    """Until clients are clustered, `models` is the common start, or a start for each client."""

    pairs_in: ClassVar = ("shown", "distance")

    clustered: bool
    assigned: Tensor  # (M,) bool: which clients have been assigned to a cluster
    origin: Tensor  # (1, P) start of the warm-up of newcomers, and of late clients without own
    own: Tensor  # (L, P) own starts of unassigned clients, in client order; (0, P) if none
    medoids: Tensor  # (K,) int64: the medoid client of each cluster; (0,) once one has left
    evidence: Tensor  # (K, P) warm-up model, gradient or update of each medoid
    medoid_loss: Tensor  # (K,) loss of each medoid's warm-up model on its own data
    shown: Tensor  # (N,) the clients of the next field, in the clustering round
    distance: Tensor  # (N, N) the distances between them


@dataclass(frozen=True)
class Warm:
    """Clients after their warm-up."""

    clients: Tensor  # (N,)
    num_examples: Tensor  # (N,)
    model: Tensor  # (N, P) the models that they trained
    evidence: Tensor  # (N, P) the data that they are compared by: models, gradients or updates

    __repr__ = in_short

    def pick(self, which: Tensor) -> Warm:
        """The clients for which `which` (N,) is true."""
        rows = (self.clients, self.num_examples, self.model, self.evidence)
        return self if which.all() else Warm(*(row[which] for row in rows))


@dataclass(frozen=True)
class LCFL(Algorithm[LCFLState]):
    """Clients train alone, evaluate each other's models, and are clustered by the losses.

    Gu et al. 2024, Algorithm 1. `warm_up` is Algorithm 1 ("local": each client trains alone, in the
    first round, and clusters start from the average of their members' models) or what the authors'
    code does ("federated": `warm_up_rounds` of FedAvg; the models are those that clients trained in
    the last of them, and clusters start from the global model). The clustering round asks all
    clients, whatever the participation; the next round repeats it if fewer answer than there will
    be clusters. A client that misses it is served the largest cluster's model, and trains none;
    when first asked later, it warms up and joins the nearest medoid. Newcomers do so too (`start`
    "own": from the seed's first model), by their half of eq. 2 or 6: medoids aren't asked.

    Every client gets all M models. With `compared`, only that many clients, drawn at random, are
    clustered; the rest join later. A federated warm-up's last mean has the cohort's in memory, too.
    """

    traits: ClassVar[Traits] = Traits(
        only_trains={"metric": ("parameters", "update")}, one_start={"start": ("common",)}
    )

    #: how clients train
    local: LocalTraining = field(default_factory=lambda: LocalTraining(lr_decay=0.99))
    metric: Metric = "loss"  #: distance between clients: eq. 2, eq. 6, eq. 1, or 1 - cosine
    num_clusters: int | None = None  #: K, if `clusterer` takes a number; None: 2 for k-medoids
    clusterer: Clusterer = field(default_factory=KMedoids)  #: method that clusters by distances
    warm_up: Literal["local", "federated"] = "local"  #: how clients train before the clustering
    warm_up_rounds: int = 5  #: number of rounds of the federated warm-up
    warm_up_training: LocalTraining | None = None  #: T iterations of a local warm-up; None: `local`
    start: Literal["common", "own"] = "common"  #: initial models of the local warm-up
    compared: int | None = None  #: number of clients that are clustered at first; None: all
    max_examples: int | None = None  #: most examples of a client for the loss of a model; None: all
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged
    #: the gradient that is compared with `metric` "gradient"
    gradient: Gradient = field(default_factory=Gradient)

    def __post_init__(self) -> None:
        check_least(self, 1, "warm_up_rounds")
        # The number of clusters is kept here, even if it was given by the clusterer.
        clusterer, number = parted(self.clusterer, self.num_clusters)
        object.__setattr__(self, "clusterer", clusterer)
        object.__setattr__(self, "num_clusters", number)
        MeanLoss(self.max_examples)  # raises for numbers that are not allowed
        common = self.start == "common" or self.warm_up == "local"
        check(common, "start", self.start, '"common": a federated warm-up has one model')
        alike = self.start == "common" or self.metric not in ("gradient", "update")
        check(alike, "start", self.start, f'"common", which metric {self.metric!r} needs')
        rule, alike = self.averaging.rule, self.start == "common"
        expected = 'possible with start "own": it compares updates of one model'
        check(alike or not rule.from_origin, "averaging.rule", type(rule).__name__, expected)
        unused = self.warm_up == "federated" and self.warm_up_training is not None
        expected = 'allowed with warm_up "federated", which trains by `local`'
        check(not unused, "warm_up_training", self.warm_up_training, expected)
        least = self.num_clusters or 1
        enough = self.compared is None or self.compared >= least
        check(enough, "compared", self.compared, f"at least num_clusters, {least}")

    @property
    def sends(self) -> tuple[Work, ...]:
        alone = self.warm_up_training or self.local
        warm_up = TrainAndGradient(alone, self.gradient) if self.metric == "gradient" else alone
        judge = (MeanLoss(self.max_examples),) if self._by_loss else ()
        return self.local, warm_up, *judge

    def init(self, setup: Setup) -> LCFLState:
        check_num_clusters(self._fewest, setup)
        setup.warn_if_shorter(self._clustering_round + 1, "warm_up_rounds", "clusters its clients")
        least, most = self._fewest, setup.num_clients
        fits = self.compared is None or least <= self.compared <= most
        check(fits, "algorithm.compared", self.compared, f"in {least} to {most}")
        own, nobody = self.start == "own", torch.zeros(setup.num_clients, dtype=torch.long)
        models = setup.new_models(setup.num_clients if own else 1, self.averaging.shared)
        origin = models[:1].clone()
        return LCFLState(
            models=models,
            labels=torch.arange(setup.num_clients) if own else nobody,
            clustered=False,
            assigned=nobody.bool(),
            origin=origin,
            own=origin[:0],
            medoids=nobody[:0],
            evidence=origin[:0],
            medoid_loss=origin.double()[:0, 0],
            shown=nobody[:0],
            distance=origin.new_zeros(0, 0),
        )

    def members(self, state: LCFLState, kept: Tensor, setup: Setup) -> LCFLState:
        if not state.clustered:
            found = super().members(state, kept, setup)
            if self.start == "common":
                return found
            return replace(found, labels=torch.arange(setup.num_clients))
        # Models are of clusters now.
        found = super().members(replace(state, models=state.models[:0]), kept, setup)
        medoids = renumbered(state.medoids, kept, len(state.labels))
        medoids = medoids if bool((medoids >= 0).all()) else medoids[:0]
        # Those that still wait begin from the origin, as newcomers do.
        found = replace(found, models=state.models, medoids=medoids, own=state.own[:0])
        return in_largest(found, len(kept))

    def round(self, state: LCFLState, ctx: Context) -> Flow[LCFLState]:
        if not state.clustered:
            if ctx.round < self._clustering_round:
                return (yield from federate(state, ctx, self.local, self.averaging))
            return (yield from self._cluster(state, ctx))
        late = ctx.cohort[~state.assigned[ctx.cohort]]
        if len(late):
            asked = ctx.asking(late, optional=True, use="compared")
            state = yield from self._assign_late(state, asked)
        known = ctx.asking(ctx.cohort[state.assigned[ctx.cohort]])
        return (yield from federate(state, known, self.local, self.averaging))

    def assign(self, state: LCFLState, ctx: Context) -> Flow[Assigned]:
        check_clustered(state.clustered, ", or a smaller warm_up_rounds")
        start = Rows(state.origin, torch.zeros_like(ctx.cohort))
        clients, distance = yield from self._to_medoids(state, start, ctx, ask_medoids=False)
        half = "half of the " if self._by_loss else ""
        return Assigned(clients, distance, f"{half}{self.metric} distance to the medoid")

    def evidence(self, state: LCFLState, sample: Sample) -> Mapping[str, Tensor]:  # noqa: ARG002
        return of_compared(state.shown, distance=state.distance)

    @property
    def _fewest(self) -> int:
        """Smallest number of clients that can be clustered: K, if the clusterer takes a number."""
        return getattr(joined(self.clusterer, self.num_clusters), "num_clusters", None) or 1

    @property
    def _clustering_round(self) -> int:
        return 0 if self.warm_up == "local" else self.warm_up_rounds - 1

    @property
    def _by_loss(self) -> bool:
        return self.metric in ("loss", "loss-gap")

    def _cluster(self, state: LCFLState, ctx: Context) -> Flow[LCFLState]:
        """Lines 1 to 16: warm-up, losses of each other's models, distances, clusters, models."""
        alone, size = self.warm_up == "local", self.compared or ctx.num_clients
        rng = np.random.default_rng(ctx.clustering_seed)
        compared = torch.from_numpy(rng.choice(ctx.num_clients, size, replace=False))
        ctx = ctx.asking(compared if alone else torch.unique(torch.cat([compared, ctx.cohort])))
        # Lines 2 to 5: each client trains alone from its start, and sends w_i.
        everyone = yield from self._warm_up(Rows(state.models, state.labels[ctx.cohort]), ctx)
        mine = torch.isin(everyone.clients, compared)
        warm = everyone.pick(mine)
        # Lines 6 to 10: client i computes L_i(w_j) for the models of all compared clients.
        if self._by_loss and len(warm.clients) >= self._fewest:
            again = ctx.asking(warm.clients)
            judged = yield from losses(warm.model, again, MeanLoss(self.max_examples))
            # Only clients that sent models and losses can be compared: cross[i, j] = L_i(w_j).
            both = torch.isin(warm.clients, judged.clients)
            warm, cross = warm.pick(both), judged.losses[:, both]
        if len(warm.clients) < self._fewest:
            return state  # the next round tries again
        # Lines 12 to 14: d(i, j), by eq. 2 or 6 from losses, or from models, updates or gradients.
        with ctx.clustering:
            if self._by_loss:
                own = cross.diagonal()
                distance = loss_distance(self.metric, cross, own, own, cross)
            else:
                own = torch.zeros(len(warm.clients), dtype=torch.double)
                distance = self._between(warm.evidence, warm.evidence, ctx.layout).fill_diagonal_(0)
            # Line 15: C(d). `middle` (K,) is the medoid of each cluster, kept for late clients.
            clusterer = joined(self.clusterer, self.num_clusters)
            clusters = clusters_by(clusterer, distance, ctx.clustering_seed)
            middle = medoids(distance, clusters)
        shown, largest = ctx.sample(len(clusters)), torch.bincount(clusters).argmax()
        assigned = state.assigned.index_fill(0, warm.clients, True)
        # Line 17: clusters start from the warm-up's models. A client that was not clustered counts
        # only if it was asked for the mean of a federated warm-up, not for the clustering.
        averaged = everyone.pick(assigned[everyone.clients] | ~mine)
        return LCFLState(
            models=self._starts(averaged, clusters, ctx, state.origin if alone else state.models),
            labels=largest.repeat(len(state.labels)).index_copy(0, warm.clients, clusters),
            clustered=True,
            assigned=assigned,
            origin=state.origin if alone else state.models,
            own=state.models[~assigned] if self.start == "own" else state.own,
            medoids=warm.clients[middle],
            evidence=warm.evidence[middle],
            medoid_loss=own[middle],
            shown=warm.clients[shown],
            distance=distance[shown][:, shown].float(),
        )

    def _starts(self, warm: Warm, clusters: Tensor, ctx: Context, origin: Tensor) -> Tensor:
        """The models (K, P) that the clusters start from; `origin` (1, P) is what was trained."""
        count, apart = int(clusters.max()) + 1, self.warm_up == "local"
        # A local warm-up is averaged in each cluster, and a federated one over all clients.
        labels = clusters if apart else torch.zeros_like(warm.clients)
        weights = within_shares(warm.num_examples, labels, ctx.max_share)
        # A rule of rows may depend on where they start; means do not, but for rounding.
        moved = self.averaging.rule.needs_rows
        rows = warm.model - origin if moved else warm.model
        sums = self.averaging.sums(rows, labels, weights, count if apart else 1, warm.clients)
        # A mean of first models, which a server's optimiser must not change.
        mean = self.averaging.mean(sums, ctx.layout)
        mean = mean + origin if moved else mean
        return mean if apart else model_of_each(mean, count)

    def _assign_late(self, state: LCFLState, ctx: Context) -> Flow[LCFLState]:
        """Clients that missed the clustering join the nearest medoid."""
        start, waiting = Rows(state.origin, torch.zeros_like(ctx.cohort)), ~state.assigned
        if len(state.own):
            # Row of `own` for client i: the number of waiting clients before it.
            start = Rows(state.own, (waiting.cumsum(0) - 1)[ctx.cohort])
        clients, distance = yield from self._to_medoids(state, start, ctx, ask_medoids=True)
        assigned = state.assigned.index_fill(0, clients, True)
        return replace(
            state,
            labels=state.labels.index_copy(0, clients, distance.argmin(1)),
            assigned=assigned,
            own=state.own[~assigned[waiting]] if len(state.own) else state.own,
        )

    def _to_medoids(
        self, state: LCFLState, start: Rows, ctx: Context, ask_medoids: bool
    ) -> Flow[tuple[Tensor, Tensor]]:
        """The clients (N,) of the cohort that answered, and their distances (N, K) to medoids."""
        warm = yield from self._warm_up(start, ctx)
        if not self._by_loss:
            return warm.clients, self._between(warm.evidence, state.evidence, ctx.layout)
        judge, again = MeanLoss(self.max_examples), ctx.asking(warm.clients, ctx.optional)
        each = Rows(warm.model, torch.arange(len(warm.clients)))
        own = yield from own_loss(each, again, judge)
        again = ctx.asking(own.clients, ctx.optional)
        theirs = yield from losses(state.evidence, again, judge)
        # L_i(w_i) (N,) of the clients that also sent L_i of the medoids' models.
        own_losses = own.losses[torch.isin(own.clients, theirs.clients), 0]
        warm = warm.pick(torch.isin(warm.clients, theirs.clients))
        returned, medoid_own = None, state.medoid_loss
        if ask_medoids and len(warm.clients) and len(state.medoids):
            middle = ctx.asking(state.medoids, ctx.optional)
            # Each round draws other `max_examples`: medoids evaluate their own models again, too.
            both = torch.cat([warm.model, state.evidence])
            judged = yield from losses(both, middle, judge)
            if len(judged.clients) == len(state.medoids):
                # Replies are in order of client numbers, medoids in order of clusters.
                answers = judged.losses[state.medoids.argsort().argsort()]
                returned = answers[:, : len(warm.model)]
                medoid_own = answers[:, len(warm.model) :].diagonal()
        distance = loss_distance(self.metric, theirs.losses, own_losses, medoid_own, returned)
        return warm.clients, distance

    def _warm_up(self, start: Rows, ctx: Context) -> Flow[Warm]:
        """Lines 2 to 5: each client trains alone, from its row of `start`."""
        # Late clients warm up with the same learning rate as the others.
        local = (self.warm_up_training or self.local).at_round(self._clustering_round)
        if self.metric != "gradient":
            trained = yield from train(start, ctx, local)
            directions = trained.update if self.metric == "update" else None
        else:
            trained = both = yield from train_with_gradient(start, ctx, local, self.gradient)
            directions = both.gradient
        # (N, P) w_i = start + update, for the clients that answered.
        model = start.take(torch.isin(ctx.cohort, trained.clients).nonzero()[:, 0]) + trained.update
        evidence = model if directions is None else directions
        return Warm(trained.clients, trained.num_examples, model, evidence)

    def _between(self, rows: Tensor, others: Tensor, layout: Layout) -> Tensor:
        """Distances (N, K) between evidence (N, P) and (K, P), without buffers."""
        rows, others = rows[:, : layout.num_weights], others[:, : layout.num_weights]
        return distances(rows, others, "l2" if self.metric == "parameters" else "cosine")
