"""StoCFL: Zeng et al., Stochastic clustered federated learning, arXiv 2303.00897."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from umbel.algorithms.base import Algorithm, Assigned, Setup, State, Traits, of_compared, one_model
from umbel.checks import check, check_least
from umbel.client.work import AnchoredTraining, LocalTraining, Work
from umbel.client.work.local_training import check_no_pull
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging, cluster_mean
from umbel.server.ask import Context, Sample, Trained, train
from umbel.server.clustering import agglomerate, cosine_similarity, distances
from umbel.server.repeated_rows import copies


@dataclass(frozen=True)
class StoCFLState(State):
    """Model 0 is the global one, and its cluster is that of the clients that were never asked."""

    origin: Tensor  # (1, P): psi, the anchor: the first model
    moves: Tensor  # (M, W): the update of each client that trained the anchor, 0 before
    seen: Tensor  # (M,) bool: whether it has


@dataclass(frozen=True)
class StoCFL(Algorithm[StoCFLState]):
    """Merge clusters whose clients move a fixed model, the anchor, in similar directions.

    Zeng et al., arXiv 2303.00897. A client that is asked for the first time trains the anchor, and
    its update is kept; it is a cluster by itself, with the global model omega. In each round, the
    clusters of the cohort are merged as long as two have a cosine of at least tau, of the mean
    updates of their clients in the cohort. They take the model of the largest of them. Then clients
    minimise F_i(theta) + mu/2 |theta - omega|^2 from the model theta of their cluster, and train
    omega, too; the models become plain means.

    Clients never asked use omega. Newcomers train the anchor, and join the cluster with the highest
    cosine, or use omega if it is below tau.
    """

    traits: ClassVar[Traits] = Traits(only_trains=None)

    tau: float = 0.3  #: lowest cosine of clusters that are merged, in (-1, 1)
    mu: float = 0.05  #: weight of the penalty for distance from the global model
    anchor_training: LocalTraining | None = None  #: how clients train the anchor; None: `local`
    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    #: how updates are averaged
    averaging: Averaging = field(default_factory=lambda: Averaging("equal"))

    def __post_init__(self) -> None:
        check(-1 < self.tau < 1, "tau", self.tau, "in (-1, 1)")
        check_least(self, 0, "mu")
        check_no_pull(self.local)

    @property
    def sends(self) -> tuple[Work, ...]:
        return self.local, self._first, AnchoredTraining(self.local, self.mu)

    def init(self, setup: Setup) -> StoCFLState:
        first, count = one_model(setup), setup.num_clients
        still = torch.zeros_like(first.models[:, : setup.layout.num_weights])
        moves = copies(still, count, f"{count:,} updates of {still.shape[1]:,} values")
        return StoCFLState(first.models, first.labels, first.models, moves, first.labels.bool())

    def members(self, state: StoCFLState, kept: Tensor, setup: Setup) -> StoCFLState:
        found = super().members(state, kept, setup)
        return replace(found, labels=found.labels.where(found.seen, 0))

    def round(self, state: StoCFLState, ctx: Context) -> Flow[StoCFLState]:
        new = ctx.cohort[~state.seen[ctx.cohort]]
        if len(new):
            asked = ctx.asking(new, optional=True, use="compared")
            state = self._with(state, (yield from self._anchored(state, asked)))
        known = ctx.asking(ctx.cohort[state.seen[ctx.cohort]])
        if not len(known.cohort):
            return state
        with ctx.clustering:
            state = self._merged(state, known.cohort)
        labels, together = state.labels[known.cohort], Rows(state.models, 0 * known.cohort)
        replies = yield known.request(
            AnchoredTraining(self.local.at_round(ctx.round), self.mu),
            theta=Rows(state.models, labels),
            anchor=together,
        )
        apart = Trained(replies.clients, **replies.columns)
        joint = yield from train(together, known, self.local)  # omega, by the same clients
        sums = self.averaging.sums(
            torch.cat([apart.update, joint.update]),
            torch.cat([state.labels[apart.clients], 0 * joint.clients]),
            torch.cat([apart.num_examples, joint.num_examples]),
            len(state.models),
            torch.cat([apart.clients, joint.clients]),
        )
        step, moments = self.averaging.move(sums, ctx.layout, state.moments)
        return replace(state, models=state.models + step, moments=moments)

    def assign(self, state: StoCFLState, ctx: Context) -> Flow[Assigned]:
        trained = yield from self._anchored(state, ctx)
        means = cluster_mean(state.moves, state.labels, state.seen, len(state.models))
        apart = distances(trained.update[:, : means.shape[1]], means, "cosine")
        apart[:, 0] = 1 - self.tau  # the global model, if no cluster is nearer
        return Assigned(trained.clients, apart, "cosine distance to the cluster's mean update")

    def evidence(self, state: StoCFLState, sample: Sample) -> Mapping[str, Tensor]:
        seen = state.seen.nonzero()[:, 0]
        clients = seen[sample(len(seen))]
        return of_compared(clients, similarity=cosine_similarity(state.moves[clients]).float())

    @property
    def _first(self) -> LocalTraining:
        return (self.anchor_training or self.local).at_round(0)

    def _anchored(self, state: StoCFLState, ctx: Context) -> Flow[Trained]:
        return (yield from train(Rows(state.origin, 0 * ctx.cohort), ctx, self._first))

    def _with(self, state: StoCFLState, trained: Trained) -> StoCFLState:
        """The state with a cluster for each of these new clients, with the global model."""
        clients, rows = trained.clients, torch.zeros_like(trained.clients)
        numbers = len(state.models) + torch.arange(len(clients))
        update = trained.update[:, : state.moves.shape[1]]
        return replace(
            state,
            models=torch.cat([state.models, state.models[rows]]),
            moments=tuple(torch.cat([each, each[rows]]) for each in state.moments),
            labels=state.labels.index_copy(0, clients, numbers),
            moves=state.moves.index_copy(0, clients, update),
            seen=state.seen.index_fill(0, clients, True),
        )

    def _merged(self, state: StoCFLState, cohort: Tensor) -> StoCFLState:
        """The state with clusters of these clients merged, and without empty ones."""
        present, places = torch.unique(state.labels[cohort], return_inverse=True)
        one = torch.ones_like(places)
        means = cluster_mean(state.moves[cohort], places, one, len(present))
        apart = distances(means, means, "cosine").fill_diagonal_(0)
        # Merging pairs until none is near, without new means, is single linkage.
        joined = agglomerate(apart, "single", threshold=1 - self.tau)
        sizes = torch.bincount(state.labels)
        become = torch.arange(len(state.models))
        for cluster in range(int(joined.max()) + 1):
            mine = present[joined == cluster]
            become[mine] = mine[sizes[mine].argmax()]
        labels = become[state.labels]
        used = torch.unique(torch.cat([labels, labels.new_zeros(1)]))  # model 0 stays
        return replace(
            state,
            models=state.models[used],
            moments=tuple(each[used] for each in state.moments),
            labels=torch.searchsorted(used, labels),
        )
