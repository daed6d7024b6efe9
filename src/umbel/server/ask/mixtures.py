"""Ask clients that use a mixture of all models."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from umbel.client.work import LocalTraining, MixtureTraining, MixtureWeights
from umbel.client.work.mixture_weights import LABEL_SHARES
from umbel.flow import Flow, Rows
from umbel.server.ask.context import Context, check_work
from umbel.server.ask.training import TrainedWithMemory
from umbel.summary import in_short


@dataclass(frozen=True)
class Memories:
    """The values that clients remember, one row per client."""

    clients: Tensor  #: (N,) the clients that answered
    memory: Tensor  #: (N, ...) the values that each client remembers

    __repr__ = in_short


@dataclass(frozen=True)
class TrainedMixture(TrainedWithMemory):
    """Results of training all models of clients' mixtures, one row per client."""

    label_shares: Tensor | None = None  #: (N, K, C) sums to 1: q_i(k) by label; None if not asked

    __repr__ = in_short


def train_mixture(
    models: Tensor,
    memory: Rows,
    ctx: Context,
    local: LocalTraining,
    label_shares: Tensor | None = None,
) -> Flow[TrainedMixture]:
    """Have each client train all `models` (K, P), each by its shares of the client's examples.

    Gives `update` (N, K, P), `num_examples` (N,) and `memory` (N, K): the weight of each model in
    the client's mixture, as in `FedEM`; with `label_shares` (K, C), as in `FedRC`.
    """
    check_work("local", local, LocalTraining)
    work = MixtureTraining(local.at_round(ctx.round))
    replies = yield ctx.request(work, _shared(models, label_shares), memory=memory)
    return TrainedMixture(replies.clients, **replies.columns)


def mixture_weights(
    models: Tensor, memory: Rows, ctx: Context, label_shares: Tensor | None = None
) -> Flow[Memories]:
    """Update the weights of each client's mixture of `models` (K, P): `memory` (N, K)."""
    replies = yield ctx.request(MixtureWeights(), _shared(models, label_shares), memory=memory)
    return Memories(replies.clients, **replies.columns)


def _shared(models: Tensor, label_shares: Tensor | None) -> dict[str, Tensor]:
    """What all clients get."""
    more = {} if label_shares is None else {LABEL_SHARES: label_shares}
    return {"models": models, **more}
