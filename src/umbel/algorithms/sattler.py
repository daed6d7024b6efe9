"""Clustered Federated Learning: Sattler, Müller & Samek, Clustered federated learning:
Model-agnostic distributed multitask optimization under privacy constraints, IEEE TNNLS 32(8),
2020. Kim et al. 2024 call it MADMO."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

import torch
from torch import Tensor

from umbel.algorithms.base import Algorithm, Known, Setup, State, one_model, spread
from umbel.checks import check
from umbel.client.work import Gradient, LocalTraining
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.answers import Gradients, Trained
from umbel.server.ask import Context, gradients, train
from umbel.server.clustering import agglomerate, cosine_similarity


@dataclass(frozen=True)
class SattlerState(State):
    """`models` gains a row with every split."""

    splits: int  # in the last round
    max_norm: float  # the largest |delta_i| of the last round
    mean_norm: float  # |weighted mean delta| in the cluster of that client
    compared: Tensor  # (N,) clients of whom is known, from the last round with a settled cluster,
    similarity: Tensor  # (N, N) how alike their directions were


@dataclass(frozen=True)
class Sattler(Algorithm[SattlerState]):
    """FedAvg in each cluster; one that has settled although its clients disagree is cut in two.

    A cluster is split when |weighted mean delta| < eps_1 and max |delta_i| > eps_2, and, with
    `gamma_max`, if sqrt((1 - max cross-similarity) / 2) > gamma_max. Everyone takes part in every
    round. With `send` "gradient" a round is one gradient step, as Kim et al. 2024 run it, and the
    norms and cosines are of gradients.

    The cluster takes its step first, then both halves go on from its model. Only those who
    answered judge the split: a member that did not answer stays with the larger half, which keeps
    the cluster's number (on a tie, the half of the first client).
    """

    local: LocalTraining = field(default_factory=LocalTraining)
    eps_1: float = 0.4
    eps_2: float = 1.6
    from_round: int = 20  # no split before this round, counted from 0
    gamma_max: float | None = None  # how far apart the halves must be; None: no such test
    linkage: Literal["complete", "single"] = "complete"  # the authors' code, or their Algorithm 1
    send: Literal["update", "gradient"] = "update"
    gradient: Gradient = field(default_factory=Gradient)  # what is sent with "gradient"
    averaging: Averaging = field(default_factory=Averaging)

    def __post_init__(self) -> None:
        check(self.eps_1 > 0, "eps_1", self.eps_1, "more than 0")
        check(self.eps_2 >= 0, "eps_2", self.eps_2, "0 or more")
        check(self.from_round >= 0, "from_round", self.from_round, "0 or more")
        gap = self.gamma_max
        check(gap is None or 0 <= gap < 1, "gamma_max", gap, "in [0, 1)")

    def check(self, known: Known) -> None:
        super().check(known)
        _check_participation(known.participation)

    def init(self, setup: Setup) -> SattlerState:
        _check_participation(setup.participation)
        first = one_model(setup)
        nobody = first.labels[:0]
        return SattlerState(
            first.models, first.labels, 0, 0.0, 0.0, nobody, first.models.new_zeros(0, 0)
        )

    def round(self, state: SattlerState, ctx: Context) -> Flow[SattlerState]:
        theta = Rows(state.models, state.labels[ctx.cohort])
        answer: Trained | Gradients
        if self.send == "update":
            answer = yield from train(theta, ctx, self.local)
            rows, scale = answer.update, 1.0
        else:
            answer = yield from gradients(theta, ctx, self.gradient)
            rows, scale = answer.gradient, -self.local.at_round(ctx.round).lr
        labels, counts = state.labels[answer.clients], answer.num_examples
        step = self.averaging.step(rows, labels, counts, len(state.models), ctx.layout)
        # A cluster settles by its own mean, whatever parameters it shares with others.
        alone = replace(self.averaging, shared=())
        mean = alone.step(rows, labels, counts, len(state.models), ctx.layout)
        # Buffers such as running statistics say nothing about where a client wants to go.
        rows, mean = rows[:, : ctx.layout.num_weights], mean[:, : ctx.layout.num_weights]
        state = replace(state, models=state.models + scale * step)
        state = _note_norms(state, labels, rows, mean)
        if ctx.round < self.from_round:
            return state
        return self._split(state, answer.clients, rows, mean)

    def measure(self, state: SattlerState) -> Mapping[str, float]:
        return {
            "splits": state.splits,
            "max_norm": state.max_norm,
            "mean_norm": state.mean_norm,
        }

    def evidence(self, state: SattlerState) -> Mapping[str, Tensor]:
        if not len(state.compared):
            return {}
        return {"clients": state.compared, "similarity": state.similarity}

    def _split(
        self, state: SattlerState, clients: Tensor, rows: Tensor, mean: Tensor
    ) -> SattlerState:
        """Cut every cluster that may be cut, by the directions `rows` (N, W) of its clients."""
        labels, models = state.labels.clone(), [state.models]
        num_clusters, considered = len(state.models), False
        for cluster in range(num_clusters):
            here = state.labels[clients] == cluster
            members, directions = clients[here], rows[here]
            if len(members) < 2 or not self._may_split(directions, mean[cluster]):
                continue
            considered = True
            leaving = self._bipartition(directions)
            if leaving.any():
                labels[members[leaving]] = num_clusters + len(models) - 1
                models.append(state.models[cluster : cluster + 1])
        if considered:
            shown = spread(len(clients))
            alike = cosine_similarity(rows[shown]).float()
            state = replace(state, compared=clients[shown], similarity=alike)
        return replace(state, models=torch.cat(models), labels=labels, splits=len(models) - 1)

    def _may_split(self, directions: Tensor, mean: Tensor) -> bool:
        """Whether the cluster as a whole has settled, and some client has not."""
        settled = mean.norm() < self.eps_1
        return bool(settled and directions.norm(dim=1).max() > self.eps_2)

    def _bipartition(self, directions: Tensor) -> Tensor:
        """Who leaves for the new cluster: (n,) bool, nobody if the halves are not far apart."""
        similarity = cosine_similarity(directions)
        halves = agglomerate(1 - similarity, self.linkage, num_clusters=2)
        size = torch.bincount(halves)
        stays = halves[0] if size[0] == size[1] else size.argmax()
        leaving = halves != stays
        if self.gamma_max is None:
            return leaving
        cross = similarity[leaving][:, ~leaving].max()
        gap = ((1 - cross) / 2).clamp(min=0).sqrt()
        return leaving & (gap > self.gamma_max)


def _check_participation(participation: float) -> None:
    expected = "1, and everyone takes part in every round of this method"
    check(participation == 1, "participation", participation, expected)


def _note_norms(state: SattlerState, labels: Tensor, rows: Tensor, mean: Tensor) -> SattlerState:
    """What eps_1 and eps_2 are to be compared with."""
    norms = rows.norm(dim=1)
    farthest = norms.argmax()
    mean_norm = mean[labels[farthest]].norm()
    return replace(state, splits=0, max_norm=float(norms[farthest]), mean_norm=float(mean_norm))
