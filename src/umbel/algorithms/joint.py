"""Joint gradient and loss: Lin et al., A joint gradient and loss based clustered federated learning
design, 2024, Algorithm 1."""

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
    renumbered,
)
from umbel.checks import check, check_least
from umbel.client.work import ChooseJointly, JointScore, LocalTraining, Work
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context, Sample, joint_scores, train_jointly
from umbel.server.repeated_rows import opinions


@dataclass(frozen=True)
class JointState(State):
    moves: Tensor  # (K, P) the last change of each model, eq. 2; zero for an empty cluster
    some_empty: bool  # whether some cluster was empty after the last round
    scores: Tensor  # (M, K) scores of all models when the client was last asked, NaN before
    idle: Tensor  # (K,) int64: number of answers since a client was last in the cluster
    pinned: Tensor  # (K,) int64: the client that stays in each cluster; (0,) if none does


@dataclass(frozen=True)
class Joint(Algorithm[JointState]):
    """Clients choose models by training loss and by agreement with the model's last change.

    Lin et al. 2024. A client chooses the k that maximises lambda S_k - (1 - lambda) L_k (eq. 4),
    computed on one mini-batch. The first identities are random; a client never asked keeps its
    first one. `repair` says how each cluster has a client in every round (II-C): K random clients,
    one for each cluster, keep it for the whole run ("pinned"). They need not be of one group, so
    that each may be in a cluster that is not the best for it. With "when-empty", K random clients
    are assigned one cluster each after a round with an empty cluster, for one round only.

    If the cohort is not all clients, a pinned client may be absent. Only empty clusters are then
    assigned, by both options, and the other clients choose. A cluster is empty if it is no client's
    last identity, or if there were as many answers as the federation has clients since a client was
    last in it: identities of clients that are not asked get out of date.

    `sign` settles an ambiguity of eq. 2, which calls a model's last change "the average gradient",
    although it is -lr times that gradient: "descent" compares the change with the client's own step
    -lr g, "literal" with g, as printed. `reduction` says whether L and g are means or sums over a
    mini-batch: eq. 1 has "sum", which makes the effect of lambda depend on the batch size. Training
    steps, and therefore the models' changes, always use the mean.
    """

    traits: ClassVar[Traits] = Traits(only_trains=None)

    num_clusters: int = 2  #: K
    #: how clients train (eq. 5)
    local: LocalTraining = field(default_factory=lambda: LocalTraining(steps=1))
    lam: float = 0.5  #: lambda, the weight of the similarity S, in [0, 1]
    #: S: the cosine (eq. 3), or minus the Euclidean distance
    similarity: Literal["cosine", "euclidean"] = "cosine"
    #: S compares a model's change with -lr g ("descent"), or with g ("literal")
    sign: Literal["descent", "literal"] = "descent"
    #: whether L and g are means or sums over a mini-batch
    reduction: Literal["mean", "sum"] = "mean"
    #: how clusters are kept from being empty: K clients stay, or are assigned anew
    repair: Literal["pinned", "when-empty", "always", "never"] = "pinned"
    #: how updates are averaged (eq. 7)
    averaging: Averaging = field(default_factory=lambda: Averaging("equal"))

    def __post_init__(self) -> None:
        check_least(self, 1, "num_clusters")
        check(0 <= self.lam <= 1, "lam", self.lam, "in [0, 1]")

    @property
    def sends(self) -> tuple[Work, ...]:
        return ChooseJointly(self._score(0)), self._score(0)

    def init(self, setup: Setup) -> JointState:
        models = setup.new_models(self.num_clusters, self.averaging.shared)
        rng = np.random.default_rng(setup.seed)
        identities = torch.from_numpy(rng.integers(0, self.num_clusters, setup.num_clients))
        pinned = torch.zeros(0, dtype=torch.long)
        if self.repair == "pinned":
            drawn = rng.choice(setup.num_clients, self.num_clusters, replace=False)
            pinned = torch.from_numpy(drawn)
            identities[pinned] = torch.arange(self.num_clusters)
        unknown = torch.full((1, self.num_clusters), torch.nan).double()
        return JointState(
            models,
            identities,
            torch.zeros_like(models),
            some_empty=False,
            scores=opinions(unknown, setup.num_clients),
            idle=torch.zeros(self.num_clusters, dtype=torch.long),
            pinned=pinned,
        )

    def members(self, state: JointState, kept: Tensor, setup: Setup) -> JointState:
        # A cluster whose pinned client has left is given to others if it is empty.
        pinned = renumbered(state.pinned, kept, len(state.labels))
        return replace(super().members(state, kept, setup), pinned=pinned)

    def round(self, state: JointState, ctx: Context) -> Flow[JointState]:
        given = Rows(self._given(state, ctx), torch.arange(len(ctx.cohort)))
        # Lines 6 to 13: losses (eq. 1), similarities (eq. 3), choice (eq. 4) and step (eq. 5).
        trained = yield from train_jointly(
            state.models, state.moves, given, ctx, self._score(ctx.round)
        )
        if not len(trained.clients):  # nobody answered, which a quorum of 0 allows
            return state
        # Line 15, eq. 7: w_k is the mean of its clients' models, so it moves by the mean update.
        sums = self.averaging.sums(
            trained.update, trained.chosen, trained.num_examples, self.num_clusters, trained.clients
        )
        step, moments = self.averaging.move(sums, ctx.layout, state.moments)
        labels = state.labels.index_copy(0, trained.clients, trained.chosen)
        members = torch.bincount(trained.chosen, minlength=self.num_clusters)
        # Counted in answers, not rounds: cohorts may have any size.
        idle = torch.where(members > 0, 0, state.idle + len(trained.clients))
        return JointState(
            models=state.models + step,
            labels=labels,
            # Shared parameters change in every model, even if no client is in its cluster.
            moves=step.where(members[:, None] > 0, 0),
            some_empty=len(_empty(labels, idle)) > 0,
            scores=state.scores.index_copy(0, trained.clients, trained.scores.double()),
            idle=idle,
            pinned=state.pinned,
            moments=moments,
        )

    def assign(self, state: JointState, ctx: Context) -> Flow[Assigned]:
        fit = yield from joint_scores(state.models, state.moves, ctx, self._score(ctx.round))
        return Assigned(fit.clients, -fit.scores, "(1 - lambda) loss - lambda similarity")

    def fit(self, state: JointState) -> Tensor:
        """(M,) minus the score of each client's cluster."""
        return -state.scores.gather(1, state.labels[:, None])[:, 0]

    def evidence(self, state: JointState, sample: Sample) -> Mapping[str, Tensor]:
        clients = sample(len(state.labels))
        return {"clients": clients, "scores": state.scores[clients]}

    def _given(self, state: JointState, ctx: Context) -> Tensor:
        """Return (N,): the cluster given to each client of the cohort, -1 if it is to choose."""
        # Line 2: the first identities are random, drawn by `init`.
        if ctx.round == 0:
            return state.labels[ctx.cohort]
        given = torch.full_like(ctx.cohort, -1)
        at_hand = ctx.cohort[:, None] == state.pinned  # (N, K), or (N, 0)
        given = torch.where(at_hand.any(1), state.labels[ctx.cohort], given)
        # Clients of the cohort that are not pinned.
        free = torch.nonzero(given < 0)[:, 0].numpy()
        whole = len(given) == ctx.num_clients
        sometimes = self.repair in ("pinned", "when-empty") and state.some_empty
        if self.repair == "always" or sometimes:
            rng = np.random.default_rng(ctx.clustering_seed)
            clusters = torch.arange(self.num_clusters)
            if self.repair == "pinned" or (self.repair == "when-empty" and not whole):
                clusters = _empty(state.labels, state.idle)
            # Too few clients for all empty clusters: some of these, at random, get one.
            if len(free) < len(clusters):
                clusters = clusters[torch.from_numpy(rng.permutation(len(clusters)))[: len(free)]]
            chosen = torch.from_numpy(rng.choice(free, len(clusters), replace=False))
            given[chosen] = clusters
        return given

    def _score(self, number: int) -> JointScore:
        local = self.local.at_round(number)
        return JointScore(local, self.lam, self.similarity, self.sign, self.reduction)


def _empty(labels: Tensor, idle: Tensor) -> Tensor:
    """The clusters without clients, or with only clients that have not answered for long."""
    nobody = torch.bincount(labels, minlength=len(idle)) == 0
    return torch.nonzero(nobody | (idle >= len(labels)))[:, 0]
