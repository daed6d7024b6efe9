"""FedSoft: Ruan & Joe-Wong, FedSoft: soft clustered federated learning with proximal local
updating, AAAI 2022, Algorithm 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from umbel.algorithms.base import (
    Algorithm,
    Assigned,
    Served,
    Setup,
    State,
    Traits,
)
from umbel.checks import check_least
from umbel.client.work import AnchoredTraining, BestShares, LocalTraining, Work
from umbel.client.work.local_training import check_no_pull
from umbel.flow import Flow, Rows
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context, Sample
from umbel.server.repeated_rows import copies, opinions

SMOOTHER = 1e-4
"""A share of 0 becomes this one, so that every client may be drawn for every centre."""


@dataclass(frozen=True)
class FedSoftState(State):
    """`models` holds the K centres; a client's label is the one with its largest share."""

    shares: Tensor  # (M, K) double: u, the importance of each centre for each client
    examples: Tensor  # (M,) int64: n_i; 0 until the client has sent its shares
    personal: Tensor  # (M, P): w_i, the model that each client trains
    trained: Tensor  # (M,) bool: whether it has


@dataclass(frozen=True)
class FedSoft(Algorithm[FedSoftState]):
    """Train a model for each client, near a mixture of the K centres that its examples resemble.

    Ruan & Joe-Wong 2022, Algorithm 1. u_is is the share of client i's examples on which centre c_s
    has the lowest loss; the cohort sends it every `estimate_every` rounds. For each centre s,
    `selected` clients of the cohort are drawn with probabilities v_si in proportion to u_is n_i.
    Those drawn minimise F_i(w) + pull/2 sum_s u_is |w - c_s|^2 from their own w_i, and c_s becomes
    the plain mean of the w_i of those drawn for it. As sum_s u_is = 1, the penalty pulls towards
    sum_s u_is c_s, which is sent.

    A client uses its w_i; before it has one, the centre with its largest share. So do newcomers.
    """

    traits: ClassVar[Traits] = Traits(only_trains=None)

    num_clusters: int = 2  #: K, the number of centres
    pull: float = 0.1  #: lambda, the weight of the penalty
    estimate_every: int = 2  #: tau: clients send their shares every so many rounds
    selected: int | None = None  #: clients drawn for a centre; None: those of the cohort, by K
    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train
    #: how the models of the clients drawn for a centre are averaged
    averaging: Averaging = field(default_factory=lambda: Averaging("equal"))

    def __post_init__(self) -> None:
        check_least(self, 1, "num_clusters", "estimate_every", "selected")
        check_least(self, 0, "pull")
        check_no_pull(self.local)

    @property
    def sends(self) -> tuple[Work, ...]:
        return AnchoredTraining(self.local, self.pull), BestShares()

    def init(self, setup: Setup) -> FedSoftState:
        # The centres differ, and so does the first model of all clients.
        models = setup.new_models(self.num_clusters + 1, self.averaging.shared)
        count, nobody = setup.num_clients, torch.zeros(setup.num_clients, dtype=torch.long)
        equal = torch.full((1, self.num_clusters), 1 / self.num_clusters).double()
        personal = copies(models[-1:], count, f"{count:,} models of {models.shape[1]:,} values")
        return FedSoftState(
            models[:-1].clone(),
            nobody,
            shares=opinions(equal, count),
            examples=nobody,
            personal=personal,
            trained=nobody.bool(),
        )

    def round(self, state: FedSoftState, ctx: Context) -> Flow[FedSoftState]:
        due = ctx.cohort
        if ctx.round % self.estimate_every:
            due = due[state.examples[due] == 0]
        if len(due):
            clients, shares, examples = yield from _shares(state, ctx.asking(due, optional=True))
            shares = state.shares.index_copy(0, clients, shares)
            examples = state.examples.index_copy(0, clients, examples)
            state = replace(state, shares=shares, examples=examples, labels=shares.argmax(1))
        known = ctx.cohort[state.examples[ctx.cohort] > 0]
        if not len(known):
            return state
        centres, drawn = self._drawn(state, known, ctx)
        asked = ctx.asking(torch.unique(drawn))
        # Row n: sum_s u_is c_s, towards which the n-th client is pulled.
        near = state.shares[asked.cohort].to(state.models.dtype) @ state.models
        replies = yield asked.request(
            AnchoredTraining(self.local.at_round(ctx.round), self.pull),
            theta=Rows(state.personal, asked.cohort),
            anchor=Rows(near, torch.arange(len(near))),
        )
        clients = replies.clients
        own = state.personal[clients] + replies.columns["update"]
        answered = torch.isin(drawn, clients)
        centres, places = centres[answered], torch.searchsorted(clients, drawn[answered])
        # c_s moves by the mean of w_i - c_s over the clients drawn for it.
        moves, counts = own[places] - state.models[centres], replies.columns["num_examples"][places]
        sums = self.averaging.sums(moves, centres, counts, self.num_clusters, clients[places])
        step, moments = self.averaging.move(sums, ctx.layout, state.moments)
        return replace(
            state,
            models=state.models + step,
            moments=moments,
            personal=state.personal.index_copy(0, clients, own),
            trained=state.trained.index_fill(0, clients, True),
        )

    def serve(self, state: FedSoftState, ctx: Context) -> Flow[Served]:
        """Each client's own model, or the centre with its largest share if it has none."""
        yield from ()  # asks nothing
        labels, own = state.labels[ctx.cohort], self.num_clusters + ctx.cohort
        rows = torch.where(state.trained[ctx.cohort], own, labels)
        models = Rows(torch.cat([state.models, state.personal]), rows)
        return Served(models, labels, adapted_from=Rows(state.models, labels))

    def assign(self, state: FedSoftState, ctx: Context) -> Flow[Assigned]:
        clients, shares, _ = yield from _shares(state, ctx)
        return Assigned(clients, 1 - shares, "1 - share of the centre")

    def evidence(self, state: FedSoftState, sample: Sample) -> Mapping[str, Tensor]:
        clients = sample(len(state.labels))
        return {"clients": clients, "weights": state.shares[clients].float()}

    def _drawn(self, state: FedSoftState, known: Tensor, ctx: Context) -> tuple[Tensor, Tensor]:
        """For each centre, those of the known clients (N,) that are drawn: centres and clients."""
        rng = np.random.default_rng(ctx.clustering_seed)
        size = min(self.selected or ceil(len(ctx.cohort) / self.num_clusters), len(known))
        likely = (state.shares[known] * state.examples[known, None]).numpy()  # v_si, not normalised
        drawn = [rng.choice(known.numpy(), size, replace=False, p=v / v.sum()) for v in likely.T]
        centres = torch.arange(self.num_clusters).repeat_interleave(size)
        return centres, torch.from_numpy(np.concatenate(drawn))


def _shares(state: FedSoftState, ctx: Context) -> Flow[tuple[Tensor, Tensor, Tensor]]:
    """The clients (N,) that answered, their smoothed shares (N, K), and n_i (N,)."""
    replies = yield ctx.request(BestShares(), {"models": state.models})
    shares = replies.columns["shares"]
    shares = torch.where(shares > 0, shares, SMOOTHER)
    return replies.clients, shares / shares.sum(1, keepdim=True), replies.columns["num_examples"]
