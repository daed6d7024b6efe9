"""FedProto: Tan et al., FedProto: Federated prototype learning across heterogeneous clients, AAAI
2022, arXiv 2105.00243."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import ClassVar

import torch
from torch import Tensor

from umbel.algorithms.base import Algorithm, Served, Setup, State, Traits, one_model
from umbel.checks import check
from umbel.client.work import MEMORY, LocalTraining, MeanLoss, Work
from umbel.client.work.local_training import check_no_pull
from umbel.client.work.prototype_training import PrototypeTraining
from umbel.flow import Flow, Rows
from umbel.server.ask import Context
from umbel.server.shares import within_shares


@dataclass(frozen=True)
class FedProtoState(State):
    kept: Tensor  # (M, P) the model of each client
    prototypes: Tensor  # (C, F) mean features of each class, 0 before
    known: Tensor  # (C,) bool: whether a client has sent features of the class


@dataclass(frozen=True)
class FedProto(Algorithm[FedProtoState]):
    """Clients train models of their own, and share only the mean features of each class.

    Tan et al. 2022. Features are what the last layer is given. A client adds `weight` times the
    mean square of the difference between an example's features and its class's prototype to the
    loss, and sends the means of its features by class after training. A prototype is the mean of
    these, weighted by their numbers of examples; a class that nobody sends keeps its prototype.
    Clients never asked, and newcomers, use the first model.
    """

    traits: ClassVar[Traits] = Traits(only_trains=None)

    weight: float = 1.0  #: lambda, the weight of the difference
    local: LocalTraining = field(default_factory=LocalTraining)  #: how clients train

    def __post_init__(self) -> None:
        check(self.weight >= 0, "weight", self.weight, "0 or more")
        check_no_pull(self.local)

    @property
    def sends(self) -> tuple[Work, ...]:
        return PrototypeTraining(self.local, self.weight), MeanLoss()

    def init(self, setup: Setup) -> FedProtoState:
        first, (classes, size) = one_model(setup), setup.layout.head[0].shape
        return FedProtoState(
            models=first.models,
            labels=first.labels,
            kept=setup.copies(setup.num_clients),
            prototypes=first.models.new_zeros(classes, size),
            known=torch.zeros(classes, dtype=torch.bool),
        )

    def round(self, state: FedProtoState, ctx: Context) -> Flow[FedProtoState]:
        work = PrototypeTraining(self.local.at_round(ctx.round), self.weight)
        sent = {"prototypes": state.prototypes, "known": state.known}
        replies = yield ctx.request(work, sent, memory=Rows(state.kept, ctx.cohort))
        means, counts = replies.columns["means"], replies.columns["examples"]
        together = torch.zeros_like(replies.clients)
        # (N, C): the weight of each client's means, whatever number of examples it claims.
        shares = [within_shares(each, together, ctx.max_share) for each in counts.unbind(1)]
        weights = torch.stack(shares, 1).to(means.dtype)
        total = weights.sum(0)
        mean = (weights[..., None] * means).sum(0) / total.clamp(min=1e-12)[:, None]
        return replace(
            state,
            kept=state.kept.index_copy(0, replies.clients, replies.columns[MEMORY]),
            prototypes=torch.where((total > 0)[:, None], mean, state.prototypes),
            known=state.known | (total > 0),
        )

    def serve(self, state: FedProtoState, ctx: Context) -> Flow[Served]:
        """Each client's own model."""
        yield from ()  # asks nothing
        labels = state.labels[ctx.cohort]
        shared = Rows(state.models, labels)
        return Served(Rows(state.kept, ctx.cohort), labels, adapted_from=shared)
