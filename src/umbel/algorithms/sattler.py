"""Clustered Federated Learning: Sattler, Müller & Samek, Clustered federated learning:
Model-agnostic distributed multitask optimization under privacy constraints, IEEE TNNLS 32(8),
2020. Kim et al. 2024 call it MADMO."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import nan
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from umbel.algorithms.base import (
    Algorithm,
    Known,
    Setup,
    State,
    Traits,
    admitted_by_loss,
    of_compared,
    one_model,
)
from umbel.checks import check, check_least
from umbel.client.work import Gradient, LocalTraining, MeanLoss, Work
from umbel.client.work.local_training import check_plain_steps
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context, Gradients, Sample, Trained, gradients, train
from umbel.server.clustering import agglomerate, cosine_similarity
from umbel.server.shares import within_shares


@dataclass(frozen=True)
class SattlerState(State):
    """`models` gains a row with every split."""

    pairs_in: ClassVar = ("compared", "similarity")

    splits: int  # number of splits in the last round
    max_norm: float  # the largest |delta_i| of the last round; NaN if nobody answered
    mean_norm: float  # |weighted mean delta| in the cluster of the client with max_norm
    # (N,) the clients of the next field, in the last round with a settled cluster
    compared: Tensor
    similarity: Tensor  # (N, N) cosine similarities of their directions
    sibling: Tensor  # (M,) first half cut off a client's cluster in its absence; else -1
    # While no client waits to be placed, this table and the last two are empty.
    headings: Tensor  # (K, W) mean direction of each cluster when it was cut off, 0 for the first
    parent: Tensor  # (K,) the cluster that each one was cut off from, -1 for the first
    stayed: Tensor  # (K, W) mean direction of the other half at that cut
    cuts: Tensor  # (K, P) the model at which these directions were taken


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
    half of the first client). A member that did not answer stays there. When it is next asked, it
    trains the model at which its cluster was split, joins the half whose mean direction was more
    similar to its own, and is not averaged. If that half was split meanwhile, too, its next answer
    settles that in the same way.
    """

    traits: ClassVar[Traits] = Traits(only_trains={"send": ("update",)})

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
        check_least(self, 0, "eps_2", "from_round")
        gap = self.gamma_max
        check(gap is None or 0 <= gap < 1, "gamma_max", gap, "in [0, 1)")

    def check(self, known: Known) -> None:
        super().check(known)
        expected = "1: all clients take part in every round of this method"
        check(known.participation == 1, "participation", known.participation, expected)

    @property
    def sends(self) -> tuple[Work, ...]:
        return self.local if self.send == "update" else self.gradient, MeanLoss()

    def init(self, setup: Setup) -> SattlerState:
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
            headings=first.models[:0, : setup.layout.num_weights],
            parent=torch.tensor([-1]),
            stayed=first.models[:0, : setup.layout.num_weights],
            cuts=first.models[:0],
        )

    def admit(self, state: SattlerState, ctx: Context) -> Flow[SattlerState]:
        return (yield from admitted_by_loss(state, ctx)) if len(state.models) > 1 else state

    def round(self, state: SattlerState, ctx: Context) -> Flow[SattlerState]:
        theta, sent = _theta(state, ctx.cohort), state.models
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
        sums = self.averaging.sums(rows, labels, counts, len(state.models), clients)
        answered, before = sums.weights > 0, state.moments
        mean = self.averaging.mean(sums, ctx.layout, before, scale)
        step, moments = self.averaging.advance(scale * mean, answered, ctx.layout, before)
        # Convergence is tested by the cluster's own mean, also for parameters shared with others.
        if self.averaging.shared:
            own = replace(self.averaging, shared=())
            mean = own.mean(sums, ctx.layout, before, scale)
        # Buffers such as running statistics carry no information about a client's direction.
        rows, mean = rows[:, : ctx.layout.num_weights], mean[:, : ctx.layout.num_weights]
        state = replace(state, models=state.models + step, moments=moments)
        state = _note_norms(state, labels, rows, mean)
        if ctx.round < self.from_round:
            return state
        with ctx.clustering:
            return self._split(state, ctx, sent, clients, rows, mean)

    def measure(self, state: SattlerState) -> Mapping[str, float]:
        return {
            "splits": state.splits,
            "max_norm": state.max_norm,
            "mean_norm": state.mean_norm,
        }

    def evidence(self, state: SattlerState, sample: Sample) -> Mapping[str, Tensor]:  # noqa: ARG002
        return of_compared(state.compared, similarity=state.similarity)

    def _split(
        self,
        state: SattlerState,
        ctx: Context,
        sent: Tensor,
        clients: Tensor,
        rows: Tensor,
        mean: Tensor,
    ) -> SattlerState:
        """Split every cluster that may be split, by its clients' directions (N, W) at `sent`."""
        labels, sibling = state.labels.clone(), state.sibling.clone()
        num_clusters, considered = len(state.models), False
        cuts: list[_Cut] = []
        for cluster in range(num_clusters):
            here = state.labels[clients] == cluster
            members, directions = clients[here], rows[here]
            if len(members) < 2 or not self._may_split(directions, mean[cluster]):
                continue
            considered = True
            # From here the cluster has converged and is incongruent: it is cut in two.
            leaving = self._bipartition(directions)
            if leaving.any():
                new = num_clusters + len(cuts)
                # Members that did not answer stay, and are noted: they settle their half when they
                # next answer.
                absent = (labels == cluster).index_fill(0, members, False)
                labels[members[leaving]] = new
                sibling[absent & (sibling < 0)] = new
                halves = directions[leaving].mean(0), directions[~leaving].mean(0)
                cuts.append(_Cut(cluster, *halves, sent[cluster]))
        if considered:
            shown = ctx.sample(len(clients))
            alike = cosine_similarity(rows[shown]).float()
            state = replace(state, compared=clients[shown], similarity=alike)
        state = replace(state, labels=labels, splits=len(cuts), sibling=sibling)
        return _after(state, cuts) if cuts else state

    def _may_split(self, directions: Tensor, mean: Tensor) -> bool:
        """Return True if the cluster as a whole has converged, but some client has not."""
        # |sum_i n_i delta_i / n| < eps_1 and max_i |delta_i| > eps_2
        settled = mean.norm() < self.eps_1
        return bool(settled and directions.norm(dim=1).max() > self.eps_2)

    def _bipartition(self, directions: Tensor) -> Tensor:
        """(n,) bool: the clients of the new cluster; none if the halves are not far apart."""
        similarity = cosine_similarity(directions)
        # Merging the most similar clients first, until two halves are left: with single linkage, no
        # other cut has a lower max similarity across.
        halves = agglomerate(1 - similarity, self.linkage, num_clusters=2)
        size = torch.bincount(halves, minlength=2)  # clients of one direction are not cut apart
        stays = halves[0] if size[0] == size[1] else size.argmax()
        leaving = halves != stays
        if self.gamma_max is None or not leaving.any():
            return leaving
        # A cut only if sqrt((1 - max cross-similarity) / 2) > gamma_max.
        cross = similarity[leaving][:, ~leaving].max()
        gap = ((1 - cross) / 2).clamp(min=0).sqrt()
        return leaving & (gap > self.gamma_max)


class _Cut(NamedTuple):
    """A split of a cluster, with the directions by which absent members find their half later."""

    cluster: int
    leaving: Tensor  # (W,) mean direction of the half that was cut off
    staying: Tensor  # (W,) mean direction of the other half
    model: Tensor  # (P,) the model at which these directions were taken


def _after(state: SattlerState, cuts: Sequence[_Cut]) -> SattlerState:
    """The state with a model for each half that was cut off."""
    state = _with_all_rows(state)
    parents = torch.tensor([cut.cluster for cut in cuts])
    state = replace(
        state,
        models=torch.cat([state.models, state.models[parents]]),
        moments=tuple(torch.cat([each, each[parents]]) for each in state.moments),
        headings=torch.cat([state.headings, torch.stack([cut.leaving for cut in cuts])]),
        parent=torch.cat([state.parent, parents]),
        stayed=torch.cat([state.stayed, torch.stack([cut.staying for cut in cuts])]),
        cuts=torch.cat([state.cuts, torch.stack([cut.model for cut in cuts])]),
    )
    return _without_idle_rows(state)


def _theta(state: SattlerState, cohort: Tensor) -> Rows:
    """Return each client's model: its cluster's, or that at which the cut it missed was made."""
    labels, missed = state.labels[cohort], state.sibling[cohort]
    if not (missed >= 0).any():
        return Rows(state.models, labels)
    # Halves move on: directions at their later models say nothing about the cut.
    table = torch.cat([state.models, state.cuts])
    return Rows(table, labels.where(missed < 0, len(state.models) + missed))


def _place(state: SattlerState, clients: Tensor, rows: Tensor) -> SattlerState:
    """Clients (N,) join the half of the cut that they missed, by their directions (N, W) there."""
    # (N,) the half that was cut off; the other half kept the number of the client's cluster.
    cut, parents = state.sibling[clients], state.parent.tolist()
    leaving = F.cosine_similarity(rows, state.headings[cut])
    staying = F.cosine_similarity(rows, state.stayed[cut])
    labels = cut.where(leaving > staying, state.labels[clients])
    missed = [_next_cut(parents, *pair) for pair in zip(labels.tolist(), cut.tolist(), strict=True)]
    state = replace(
        state,
        labels=state.labels.index_copy(0, clients, labels),
        sibling=state.sibling.index_copy(0, clients, torch.tensor(missed)),
    )
    return _without_idle_rows(state)


def _next_cut(parents: Sequence[int], cluster: int, cut: int) -> int:
    """The first half cut off this cluster after `cut`, -1 if none: numbers grow with every cut."""
    later = enumerate(parents[cut + 1 :], cut + 1)
    return next((number for number, parent in later if parent == cluster), -1)


def _with_all_rows(state: SattlerState) -> SattlerState:
    """Return the state with a row for each cluster in the tables that only late clients need.

    If the tables were empty, no client waits for an earlier cut: their rows are 0, and never read.
    """
    if len(state.headings) == len(state.models):
        return state
    zeros = torch.zeros_like(state.models)
    width = state.headings.shape[1]
    return replace(state, headings=zeros[:, :width], stayed=zeros[:, :width], cuts=zeros)


def _without_idle_rows(state: SattlerState) -> SattlerState:
    """Return the state without the tables that only late clients need, if there are none."""
    if (state.sibling >= 0).any():
        return state
    tables = {name: getattr(state, name)[:0].clone() for name in ("headings", "stayed", "cuts")}
    return replace(state, **tables)


def _note_norms(state: SattlerState, labels: Tensor, rows: Tensor, mean: Tensor) -> SattlerState:
    """Note the norms that eps_1 and eps_2 are compared with."""
    if not len(rows):
        return replace(state, splits=0, max_norm=nan, mean_norm=nan)
    norms = rows.norm(dim=1)
    farthest = norms.argmax()
    mean_norm = mean[labels[farthest]].norm()
    return replace(state, splits=0, max_norm=float(norms[farthest]), mean_norm=float(mean_norm))
