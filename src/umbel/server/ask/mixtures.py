"""Ask clients that use a mixture of all models."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from umbel.client.work import LocalTraining, MixtureTraining, MixtureWeights
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


def train_mixture(
    models: Tensor, memory: Rows, ctx: Context, local: LocalTraining
) -> Flow[TrainedWithMemory]:
    """Have each client train all `models` (K, P), each by its shares of the client's examples.

    Gives `update` (N, K, P), `num_examples` (N,) and `memory` (N, K): the weight of each model in
    the client's mixture, as in `FedEM`.
    """
    check_work("local", local, LocalTraining)
    work = MixtureTraining(local.at_round(ctx.round))
    replies = yield ctx.request(work, {"models": models}, memory=memory)
    return TrainedWithMemory(replies.clients, **replies.columns)


def mixture_weights(models: Tensor, memory: Rows, ctx: Context) -> Flow[Memories]:
    """Update the weights of each client's mixture of `models` (K, P): `memory` (N, K)."""
    replies = yield ctx.request(MixtureWeights(), {"models": models}, memory=memory)
    return Memories(replies.clients, **replies.columns)
