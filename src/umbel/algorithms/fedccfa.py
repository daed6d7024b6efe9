"""FedCCFA: Chen et al., Classifier clustering and feature alignment for federated learning under
distributed concept drift, NeurIPS 2024, arXiv 2410.18478."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from umbel.algorithms.base import Algorithm, Served, Setup, State, Traits, one_model
from umbel.checks import check, check_least
from umbel.client.optimizers import SGD
from umbel.client.work import AlignedTraining, LocalTraining, MeanLoss, Work
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging, cluster_mean
from umbel.server.ask import Context
from umbel.server.clusterers import DBSCAN
from umbel.server.clustering import cosine_similarity


@dataclass(frozen=True)
class FedCCFAState(State):
    """The one model has the shared body, and the mean of the heads."""

    heads: Tensor  # (M, C, F) rows of heads, or (M, C, F + 1) with biases; 0 for those never asked
    prototypes: Tensor  # (M, C, F) mean features of class clusters, 0 before there are any
    clusters: Tensor  # (M, C) the class clusters of the last cohort, -1 for none


BODY = SGD(momentum=0.9, weight_decay=1e-5)


@dataclass(frozen=True)
class FedCCFA(Algorithm[FedCCFAState]):
    """One body for all clients, and heads whose rows are shared by those who agree on a class.

    Chen et al. 2024. A client trains its head for an epoch, and then the body as `local` says; the
    body is averaged as in FedAvg. It also trains a copy of the head on at most five examples of
    each class. For each class, the copies' rows of weights are compared among the clients that have
    examples of it: rho_ij is the mean of |cos(i, z) - cos(j, z)| over the others z, or 1 - cos(i,
    j) if there are none. DBSCAN joins clients at most `eps` apart. Within such a class cluster the
    rows of the heads, and the mean features of the class, are averaged plainly. From round
    `align_from` on, the body's loss has the cross-entropy of cos(z, means) / 0.1 for an example's
    features z, times the entropy of the client's labels and `weight`.

    Clients use their own head on the shared body. Those never asked, and newcomers, use the mean of
    the heads.
    """

    traits: ClassVar[Traits] = Traits(only_trains=None)

    eps: float = 0.1  #: largest distance of neighbours in a class cluster
    weight: float = 0.05  #: of the term that aligns features; the paper's 1 / gamma
    align_from: int = 20  #: the first round with that term, counted from 0
    head_rate: float = 10.0  #: learning rate of the heads, by that of `local`
    #: how clients train the body
    local: LocalTraining = field(default_factory=lambda: LocalTraining(0.01, 5, 64, optimizer=BODY))
    averaging: Averaging = field(default_factory=Averaging)  #: how bodies are averaged

    def __post_init__(self) -> None:
        DBSCAN(self.eps)  # refuses what is no distance
        check_least(self, 0, "weight", "align_from", "head_rate")

    @property
    def sends(self) -> tuple[Work, ...]:
        return AlignedTraining(self.local, self.head_rate, self.weight), MeanLoss()

    def init(self, setup: Setup) -> FedCCFAState:
        first, places = one_model(setup), torch.cat(setup.layout.head, 1)
        fine = places.numel() < setup.layout.num_weights
        check(fine, "model", "one layer", "a network with trained layers before the last one")
        heads = first.models.new_zeros(setup.num_clients, *places.shape)
        prototypes = first.models.new_zeros(setup.num_clients, *setup.layout.head[0].shape)
        clusters = torch.full((setup.num_clients, len(places)), -1)
        return FedCCFAState(first.models, first.labels, heads, prototypes, clusters)

    def round(self, state: FedCCFAState, ctx: Context) -> Flow[FedCCFAState]:
        places, theta = torch.cat(ctx.layout.head, 1), self._own(state, ctx)  # (C, F + 1 or F)
        expected = f"{ctx.num_outputs}, as the last trained layer must give the outputs"
        check(len(places) == ctx.num_outputs, "model: its last layer", len(places), expected)
        work = AlignedTraining(self.local.at_round(ctx.round), self.head_rate, self.weight)
        given = Rows(state.prototypes * (ctx.round >= self.align_from), ctx.cohort)
        replies = yield ctx.request(work, theta=theta, prototypes=given)
        clients, columns = replies.clients, replies.columns
        trained = theta.table[torch.searchsorted(ctx.cohort, clients)] + columns["update"]
        # FedAvg, of bodies and of heads: the latter for those who have none.
        moves, together = trained - state.models, torch.zeros_like(clients)
        sums = self.averaging.sums(moves, together, columns["num_examples"], 1, clients)
        step, moments = self.averaging.move(sums, ctx.layout, state.moments)

        # By class: rows of heads, and beside them means of features.
        rows, held = torch.cat([trained[:, places], columns["means"]], 2), columns["examples"] > 0
        clusters = torch.full_like(state.clusters, -1)
        for number in held.any(0).nonzero()[:, 0].tolist():
            who = held[:, number].nonzero()[:, 0]
            with ctx.clustering:
                labels = DBSCAN(self.eps, 1)(madd(columns["balanced"][who, number]), 0)
            mean = cluster_mean(rows[who, number], labels, torch.ones_like(labels), len(who))
            rows[who, number], clusters[clients[who], number] = mean[labels], labels
        heads, means = rows.tensor_split([places.shape[1]], 2)
        means = means.where(held[..., None], state.prototypes[clients])
        models, heads = state.models + step, state.heads.index_copy(0, clients, heads)
        prototypes = state.prototypes.index_copy(0, clients, means)
        return FedCCFAState(models, state.labels, heads, prototypes, clusters, moments=moments)

    def serve(self, state: FedCCFAState, ctx: Context) -> Flow[Served]:
        """The shared body with each client's own head."""
        yield from ()  # asks nothing
        labels = state.labels[ctx.cohort]
        return Served(self._own(state, ctx), labels, adapted_from=Rows(state.models, labels))

    def measure(self, state: FedCCFAState) -> Mapping[str, float]:
        return {"class_clusters": float((state.clusters.amax(0) + 1).double().mean())}

    def _own(self, state: FedCCFAState, ctx: Context) -> Rows:
        """The models (N, P) of the cohort."""
        models, places = state.models.repeat(len(ctx.cohort), 1), torch.cat(ctx.layout.head, 1)
        heads = state.heads[ctx.cohort]  # 0 for those never asked
        models[:, places] = heads.where(heads.any(2).any(1)[:, None, None], models[:, places])
        return Rows(models, torch.arange(len(models)))


def madd(rows: Tensor) -> Tensor:
    """Distances (N, N): the mean over other rows z of |cos(i, z) - cos(j, z)|, for rows (N, D).

    Without any others, two rows are 1 - cos(i, j) apart.
    """
    cosines = cosine_similarity(rows).fill_diagonal_(1)
    # The sums over all z count 1 - cos(i, j) twice: for z = i, and for z = j.
    sums = torch.cdist(cosines, cosines, p=1) - 2 * (1 - cosines)
    return (sums / (len(rows) - 2)).clamp(min=0) if len(rows) > 2 else 1 - cosines
