"""FLACC: Mehta & Shao, A greedy agglomerative framework for clustered federated learning, IEEE
Transactions on Industrial Informatics 19(12), 2023, Algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import nan
from typing import ClassVar, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umbel.algorithms.base import (
    Algorithm,
    Assigned,
    Served,
    Setup,
    State,
    Traits,
    admitted_by_loss,
    federate,
    in_largest,
    one_model,
    renumbered,
)
from umbel.checks import UsageError, check, check_least
from umbel.client.work import Gradient, LocalTraining, MeanLoss, TrainAndGradient, Work
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context, Sample, Trained, train, train_with_gradient
from umbel.server.clustering import cosine_similarity
from umbel.server.repeated_rows import model_of_each
from umbel.summary import in_short


@dataclass(frozen=True)
class FLACCState(State):
    """During merging, `models` is one global model, and a label is an entity's first client.

    An entity is the paper's word for a client, or clients that were merged, before separation.

    After separation labels are 0 to K-1, and each entity has its own model.
    """

    pairs: Tensor  # (E, 2) int64, pairs of clients i < j with a remembered similarity
    similarity: Tensor  # (E,) alpha_ij
    seen: Tensor  # (E,) int64, tau_ij: the last round with the pair in one cohort
    last_merge: int  # the last round with a merge, -1 before the first merge
    separated: bool
    merges: int  # number of merges in the last round
    best_cross: float  # the value that solved eq. 9 in the last round; NaN if none did

    @property
    def labels_end(self) -> int:
        return len(self.models) if self.separated else len(self.labels)


@dataclass(frozen=True)
class FLACC(Algorithm[FLACCState]):
    """Merge the clients or groups whose updates agree most; then train each group separately.

    Mehta & Shao 2023, Algorithm 1. The number of clusters is found, not given. A client's entity is
    its cluster from the first round on, but until separation all clients train and use the one
    global model. A pair of clients that was never in one cohort, or not in the last `memory`
    rounds, has no similarity: minima and maxima are over the pairs that have one. Line 19 forgets
    after the merges, so that the merges of a round still use similarities of `memory` + 1 rounds
    before. Two subservers may merge if one of them has no known inner pair, whatever the pairs of
    the other (`within`). A lost reply changes nothing that is remembered of the client. A client
    never asked stays a cluster of its own.

    `best_of` settles a point that Algorithm 1 leaves open: the arg max of eq. 9 is over the pairs
    that may merge (as Fig. 2 shows), or over all pairs. In the second case, a best pair that may
    not merge blocks the others.
    """

    traits: ClassVar[Traits] = Traits(only_trains={"similarity": ("update",)})

    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    n_merge: int = 2  #: largest number of merges in a round
    memory: int = 10  #: T, number of rounds for which a similarity is remembered
    n_sep: int = 10  #: rounds without a merge before the entities separate
    alpha_0: float = 0.0  #: eq. 16: the smallest cross-similarity must exceed this value
    #: similarities compare updates (eq. 19), or gradients (eq. 8)
    similarity: Literal["update", "gradient"] = "update"
    best_of: Literal["admissible", "all"] = "admissible"  #: pairs among which the best is merged
    averaging: Averaging = field(default_factory=Averaging)  #: how updates are averaged
    #: the gradient that is compared with `similarity` "gradient"
    gradient: Gradient = field(default_factory=Gradient)
    #: eq. 12: the minimum bounds a merge if it is known of both subservers, or of one at least
    within: Literal["both", "known"] = "both"

    def __post_init__(self) -> None:
        check_least(self, 1, "n_merge", "n_sep")
        check_least(self, 0, "memory")
        check(-1 < self.alpha_0 <= 1, "alpha_0", self.alpha_0, "in (-1, 1]")

    @property
    def sends(self) -> tuple[Work, ...]:
        both = (
            (TrainAndGradient(self.local, self.gradient),) if self.similarity == "gradient" else ()
        )
        return self.local, *both, MeanLoss()

    def init(self, setup: Setup) -> FLACCState:
        return FLACCState(
            models=one_model(setup).models,
            labels=torch.arange(setup.num_clients),
            pairs=torch.zeros(0, 2, dtype=torch.long),
            similarity=torch.zeros(0, dtype=torch.double),
            seen=torch.zeros(0, dtype=torch.long),
            last_merge=-1,
            separated=False,
            merges=0,
            best_cross=nan,
        )

    def members(self, state: FLACCState, kept: Tensor, setup: Setup) -> FLACCState:
        found = super().members(state, kept, setup)
        if state.separated:
            return in_largest(found, len(kept))
        pairs = renumbered(state.pairs, kept, len(state.labels))
        here = (pairs >= 0).all(1)
        # An entity is called by its first client, who may have left. Newcomers are entities.
        before = found.labels[: len(kept)].numpy()
        _, first, whose = np.unique(before, return_index=True, return_inverse=True)
        return replace(
            found,
            labels=torch.cat([torch.from_numpy(first[whose]), found.labels[len(kept) :]]),
            pairs=pairs[here],
            similarity=state.similarity[here],
            seen=state.seen[here],
        )

    def admit(self, state: FLACCState, ctx: Context) -> Flow[FLACCState]:
        return (yield from admitted_by_loss(state, ctx)) if state.separated else state

    def round(self, state: FLACCState, ctx: Context) -> Flow[FLACCState]:
        # Line 5 holds in the first n_sep rounds too, although no rounds came before them.
        if not state.separated and ctx.round - state.last_merge > self.n_sep:
            state = _separate(state)
        if state.separated:
            return (yield from federate(state, ctx, self.local, self.averaging))
        theta = Rows(state.models, torch.zeros_like(ctx.cohort))
        trained: Trained
        if self.similarity == "update":
            trained = yield from train(theta, ctx, self.local)
            directions = trained.update
        else:
            trained = yield from train_with_gradient(theta, ctx, self.local, self.gradient)
            directions = trained.gradient
        if not len(trained.clients):  # nobody answered, which a quorum of 0 allows
            # Such a round is none without a merge: nothing could merge in it.
            last_merge = state.last_merge + 1
            silent = replace(state, last_merge=last_merge, merges=0, best_cross=nan)
            return _forget(silent, ctx.round - self.memory)
        # Buffers such as running statistics carry no information about a client's direction.
        directions = directions[:, : ctx.layout.num_weights]
        with ctx.clustering:  # its time is the record's `clustering_seconds`
            # Lines 10 to 12, then 13 to 18, then 19.
            state = _remember(state, trained.clients, cosine_similarity(directions), ctx.round)
            state = self._merge(state, ctx.round)
            state = _forget(state, ctx.round - self.memory)
        # Line 20: theta <- theta + sum_i n_i update_i / sum_i n_i, one global model.
        everyone = torch.zeros_like(trained.clients)
        sums = self.averaging.sums(
            trained.update, everyone, trained.num_examples, 1, trained.clients
        )
        step, moments = self.averaging.move(sums, ctx.layout, state.moments)
        return replace(state, models=state.models + step, moments=moments)

    def serve(self, state: FLACCState, ctx: Context) -> Flow[Served]:
        yield from ()  # asks nothing
        labels = state.labels[ctx.cohort]
        model = labels if state.separated else torch.zeros_like(labels)
        return Served(Rows(state.models, model), labels)

    def assign(self, state: FLACCState, ctx: Context) -> Flow[Assigned]:
        if not state.separated:
            raise UsageError(
                "run: stopped before its clusters separated, so that one model serves all and "
                "newcomers fit every cluster alike; give it more rounds, or a smaller n_sep"
            )
        return (yield from super().assign(state, ctx))

    def measure(self, state: FLACCState) -> Mapping[str, float]:
        return {
            "merges": state.merges,
            "best_cross": state.best_cross,
            "separated": float(state.separated),
        }

    def evidence(self, state: FLACCState, sample: Sample) -> Mapping[str, Tensor]:
        if state.separated or not len(state.pairs):
            return {}
        clients = sample(len(state.labels))
        place = torch.full_like(state.labels, -1)
        place[clients] = torch.arange(len(clients))
        shown = (place[state.pairs] >= 0).all(1)
        i, j = place[state.pairs[shown]].T
        similarity = torch.full((len(clients), len(clients)), torch.nan)
        similarity[i, j] = similarity[j, i] = state.similarity[shown].float()
        return {"clients": clients, "similarity": similarity.fill_diagonal_(1)}

    def _merge(self, state: FLACCState, number: int) -> FLACCState:
        """Lines 13 to 18: up to n_merge merges, each chosen after the previous one."""
        labels, pairs = state.labels.numpy().copy(), state.pairs.numpy()
        first_best, merges = nan, 0
        for _ in range(self.n_merge):
            similarity, known = state.similarity.numpy(), self.within == "known"
            # Line 14 anew after each merge: labels of the merged entity have changed.
            pairs_across = _cross_pairs(labels[pairs], similarity, np.bincount(labels), known)
            if not len(pairs_across.smallest):
                break
            if not merges:
                first_best = float(pairs_across.smallest.max())
            # Line 15: eq. 16 (alpha_0 = 0 is eq. 17) and eq. 14.
            allowed = (pairs_across.smallest > self.alpha_0) & (pairs_across.potential > 0)
            candidates = allowed if self.best_of == "admissible" else np.ones_like(allowed)
            if not candidates.any():
                break
            # Eq. 9: of the pairs of entities, the one with the largest smallest similarity.
            best = int(np.where(candidates, pairs_across.smallest, -np.inf).argmax())
            if not allowed[best]:
                break
            # Eq. 10: one entity takes the smaller name, the number of its first client.
            into, gone = pairs_across.entities[best]
            labels[labels == gone] = into
            merges += 1
        return replace(
            state,
            labels=torch.from_numpy(labels),
            last_merge=number if merges else state.last_merge,
            merges=merges,
            best_cross=first_best,
        )


@dataclass(frozen=True)
class _CrossPairs:
    """The pairs of entities with a known similarity between them, in order of their names."""

    entities: NDArray[np.int64]  # (Q, 2) the smaller name first
    smallest: NDArray[np.float64]  # (Q,) eq. 15
    potential: NDArray[np.float64]  # (Q,) Phi, eq. 13; +inf if nothing bounds the merge

    __repr__ = in_short


def _cross_pairs(
    names: NDArray[np.int64],
    similarity: NDArray[np.float64],
    sizes: NDArray[np.int64],
    one_is_enough: bool,
) -> _CrossPairs:
    """The terms of eqs. 9 to 13 for every pair of entities, from the remembered pairs of clients.

    names (E, 2) are the entities of the two clients of each remembered pair, and sizes the number
    of clients by name. A merge is bounded by eq. 12 if both entities have a known inner pair, or if
    one has and `one_is_enough`; single clients, which have none, are always free to merge.
    """
    names = np.sort(names, axis=1)
    # Eq. 12: the smallest similarity inside each entity, +inf if no inner pair is known.
    inside = names[:, 0] == names[:, 1]
    within = np.full(len(sizes), np.inf)
    np.minimum.at(within, names[inside, 0], similarity[inside])
    # Eqs. 11 and 15: the largest and smallest similarity across, for each pair of entities. Sorted
    # by the pair of names, the similarities of one pair stand together and are reduced in one pass.
    across = names[~inside]
    order = np.lexsort((across[:, 1], across[:, 0]))
    across, values = across[order], similarity[~inside][order]
    new = np.ones(len(across), dtype=bool)
    new[1:] = (across[1:] != across[:-1]).any(axis=1)
    starts = np.flatnonzero(new)
    if not len(starts):
        return _CrossPairs(across, values, values)
    entities = across[starts]
    smallest, largest = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    inner = within[entities]
    unknown = np.isinf(inner).all(1) if one_is_enough else np.isinf(inner).any(1)
    free = unknown | (sizes[entities] < 2).any(1)
    potential = np.where(free, np.inf, largest - inner.min(1))  # eqs. 12 and 13
    return _CrossPairs(entities, smallest, potential)


def _remember(state: FLACCState, clients: Tensor, similarity: Tensor, number: int) -> FLACCState:
    """Lines 10 to 12: the similarities of pairs in the cohort replace the remembered ones."""
    i, j = torch.triu_indices(len(clients), len(clients), offset=1)
    new = torch.stack([clients[i], clients[j]], dim=1)  # clients are in increasing order
    in_cohort = torch.zeros_like(state.labels, dtype=torch.bool).index_fill_(0, clients, True)
    old = ~in_cohort[state.pairs].all(dim=1)
    return replace(
        state,
        pairs=torch.cat([state.pairs[old], new]),
        similarity=torch.cat([state.similarity[old], similarity[i, j]]),
        seen=torch.cat([state.seen[old], torch.full((len(new),), number)]),
    )


def _forget(state: FLACCState, oldest: int) -> FLACCState:
    """Line 19, eq. 18: drop the similarities of pairs last in one cohort before round `oldest`."""
    keep = state.seen >= oldest
    return replace(
        state,
        pairs=state.pairs[keep],
        similarity=state.similarity[keep],
        seen=state.seen[keep],
    )


def _separate(state: FLACCState) -> FLACCState:
    """Every entity becomes a separate federation, and starts from the global model."""
    names, labels = torch.unique(state.labels, return_inverse=True)
    nothing = torch.zeros(0, dtype=torch.long)
    return replace(
        state,
        models=model_of_each(state.models, len(names)),
        moments=tuple(model_of_each(each, len(names)) for each in state.moments),
        labels=labels,
        pairs=nothing.view(0, 2),
        similarity=nothing.double(),
        seen=nothing,
        separated=True,
        merges=0,
        best_cross=nan,
    )
