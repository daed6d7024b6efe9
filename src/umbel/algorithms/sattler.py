"""Clustered Federated Learning: Sattler, Müller & Samek, Clustered federated learning:
Model-agnostic distributed multitask optimization under privacy constraints, IEEE TNNLS 32(8),
2020. Kim et al. 2024 call it MADMO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from umbel.algorithms.base import Algorithm, Known, Setup, State, one_model
from umbel.checks import check
from umbel.client.work import Gradient, LocalTraining
from umbel.client.work.local_training import check_plain_steps
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context, Gradients, Sample, Trained, gradients, train
from umbel.server.clustering import agglomerate, cosine_similarity
from umbel.server.shares import within_shares


@dataclass(frozen=True)
class SattlerState(State):
    """`models` gains a row with every split."""

    splits: int  # number of splits in the last round
    max_norm: float  # the largest |delta_i| of the last round
    mean_norm: float  # |weighted mean delta| in the cluster of the client with max_norm
    # (N,) the clients of the next field, in the last round with a settled cluster
    compared: Tensor
    similarity: Tensor  # (N, N) cosine similarities of their directions
    sibling: Tensor  # (M,) first half cut off a client's cluster in its absence; else -1
    headings: Tensor  # (K, W) mean direction of each half when it was last cut, 0 before
    parent: Tensor  # (K,) the cluster that each one was cut off from, -1 for the first


@dataclass(frozen=True)
class Sattler(Algorithm[SattlerState]):
    """Average within clusters, and split a cluster that has converged while its clients disagree.

    Sattler et al. 2020; Kim et al. 2024 call it MADMO. A cluster is split when |weighted mean
    delta| < eps_1 and max |delta_i| > eps_2, and, with `gamma_max`, if sqrt((1 - max
    cross-similarity) / 2) > gamma_max. Every client takes part in every round. With `send`
    "gradient" a round is one gradient step, as Kim et al. 2024 run it, and the norms and cosines
    are those of gradients; buffers, such as running statistics, then keep their initial values.

    The cluster takes its step first, then both halves continue from its model. A split is based
    only on the clients that answered; the larger half keeps the cluster's number (on a tie, the
    half of the first client). A member that did not answer stays there until its next answer, which
    is not averaged. Then it joins one of the halves that its cluster, or a half of it, was split
    into meanwhile: the half whose mean direction at the split is most similar to the client's.
    """

    only_trains: ClassVar[Mapping[str, tuple[str, ...]]] = {"send": ("update",)}

    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    eps_1: float = 0.4  #: a cluster has converged if its mean update is shorter than this
    eps_2: float = 1.6  #: clients disagree if the longest update is longer than this
    from_round: int = 20  #: no split before this round, counted from 0
    #: sqrt((1 - max cross-similarity) / 2) of the halves must exceed this; None: no such test
    gamma_max: float | None = None
    #: "complete" is the authors' code, "single" their Algorithm 1
    linkage: Literal["complete", "single"] = "complete"
    send: Literal["update", "gradient"] = "update"  #: what clients send
    #: the gradient that is sent with `send` "gradient"
    gradient: Gradient = field(default_factory=Gradient)
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged

    def __post_init__(self) -> None:
        check_plain_steps(self.local, self.send)
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
        return SattlerState(
            models=first.models,
            labels=first.labels,
            splits=0,
            max_norm=0.0,
            mean_norm=0.0,
            compared=first.labels[:0],
            similarity=first.models.new_zeros(0, 0),
            sibling=torch.full_like(first.labels, -1),
            headings=first.models.new_zeros(1, setup.layout.num_weights),
            parent=torch.tensor([-1]),
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
        clients, counts = answer.clients, answer.num_examples
        late = state.sibling[clients] >= 0
        if late.any():
            state = _place(state, clients[late], rows[late, : ctx.layout.num_weights])
            clients, counts, rows = clients[~late], counts[~late], rows[~late]
            # The engine has bounded each client's share among all who answered.
            counts = within_shares(counts, state.labels[clients], ctx.max_share)
        labels = state.labels[clients]
        step = self.averaging.step(rows, labels, counts, len(state.models), ctx.layout)
        # Convergence is tested by the cluster's own mean, also for parameters shared with others.
        mean = step
        if self.averaging.shared:
            alone = replace(self.averaging, shared=())
            mean = alone.step(rows, labels, counts, len(state.models), ctx.layout)
        # Buffers such as running statistics carry no information about a client's direction.
        rows, mean = rows[:, : ctx.layout.num_weights], mean[:, : ctx.layout.num_weights]
        state = replace(state, models=state.models + scale * step)
        state = _note_norms(state, labels, rows, mean)
        if ctx.round < self.from_round:
            return state
        with ctx.clustering:
            return self._split(state, ctx, clients, rows, mean)

    def measure(self, state: SattlerState) -> Mapping[str, float]:
        return {
            "splits": state.splits,
            "max_norm": state.max_norm,
            "mean_norm": state.mean_norm,
        }

    def evidence(self, state: SattlerState, sample: Sample) -> Mapping[str, Tensor]:  # noqa: ARG002
        if not len(state.compared):
            return {}
        return {"clients": state.compared, "similarity": state.similarity}

    def _split(
        self, state: SattlerState, ctx: Context, clients: Tensor, rows: Tensor, mean: Tensor
    ) -> SattlerState:
        """Split every cluster that may be split, by the directions `rows` (N, W) of its clients."""
        labels, models = state.labels.clone(), [state.models]
        sibling = state.sibling.clone()
        num_clusters, considered = len(state.models), False
        # Checkpoints of earlier versions lack this field.
        headings = _rows(state.headings, num_clusters, rows.shape[1])
        unknown = num_clusters - len(state.parent)
        parents = [*state.parent.tolist(), *[-1] * unknown]
        for cluster in range(num_clusters):
            here = state.labels[clients] == cluster
            members, directions = clients[here], rows[here]
            if len(members) < 2 or not self._may_split(directions, mean[cluster]):
                continue
            considered = True
            leaving = self._bipartition(directions)
            if leaving.any():
                new = num_clusters + len(models) - 1
                absent = (labels == cluster).index_fill(0, members, False)
                labels[members[leaving]] = new
                sibling[absent & (sibling < 0)] = new
                parents.append(cluster)
                models.append(state.models[cluster : cluster + 1])
                headings = _rows(headings, new + 1, rows.shape[1])
                headings[cluster] = directions[~leaving].mean(0)
                headings[new] = directions[leaving].mean(0)
        if considered:
            shown = ctx.sample(len(clients))
            alike = cosine_similarity(rows[shown]).float()
            state = replace(state, compared=clients[shown], similarity=alike)
        return replace(
            state,
            models=torch.cat(models),
            labels=labels,
            splits=len(models) - 1,
            sibling=sibling,
            headings=headings,
            parent=torch.tensor(parents),
        )

    def _may_split(self, directions: Tensor, mean: Tensor) -> bool:
        """Whether the cluster as a whole has converged, and some client has not."""
        settled = mean.norm() < self.eps_1
        return bool(settled and directions.norm(dim=1).max() > self.eps_2)

    def _bipartition(self, directions: Tensor) -> Tensor:
        """(n,) bool: the clients of the new cluster; none if the halves are not far apart."""
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
    expected = "1: all clients take part in every round of this method"
    check(participation == 1, "participation", participation, expected)


def _place(state: SattlerState, clients: Tensor, rows: Tensor) -> SattlerState:
    """Clients (N,) that missed splits join the half most similar to their directions (N, W)."""
    labels, parents = state.labels.clone(), state.parent.tolist()
    for client, row in zip(clients.tolist(), rows, strict=True):
        halves = _halves(parents, int(labels[client]), int(state.sibling[client]))
        toward = F.cosine_similarity(row, state.headings[halves])
        labels[client] = halves[int(toward.argmax())]
    return replace(
        state,
        labels=labels,
        sibling=state.sibling.index_fill(0, clients, -1),
    )


def _halves(parents: Sequence[int], cluster: int, first: int) -> list[int]:
    """All parts of a cluster since `first` was cut off from it: numbers grow with every cut."""
    halves = [cluster, first]
    for number, parent in enumerate(parents[first + 1 :], first + 1):
        if parent in halves:
            halves.append(number)
    return halves


def _rows(table: Tensor, rows: int, columns: int) -> Tensor:
    """A copy of the table (K, columns) with this many rows; new rows are 0."""
    longer = table.new_zeros(rows, columns)
    longer[: len(table)] = table
    return longer


def _note_norms(state: SattlerState, labels: Tensor, rows: Tensor, mean: Tensor) -> SattlerState:
    """Note the norms that eps_1 and eps_2 are compared with."""
    if not len(rows):
        return replace(state, splits=0)
    norms = rows.norm(dim=1)
    farthest = norms.argmax()
    mean_norm = mean[labels[farthest]].norm()
    return replace(state, splits=0, max_norm=float(norms[farthest]), mean_norm=float(mean_norm))
