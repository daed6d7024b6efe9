"""A method with client work of its own, with state, and with models that it chooses to serve.

Clients send the shares of their labels in addition to training. The method keeps them in its state,
and serves each client the model of the most similar client.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from umbel.method import (
    Algorithm,
    Context,
    Flow,
    LocalTraining,
    Net,
    Promise,
    Rows,
    Served,
    Setup,
    Shard,
    State,
    Traits,
    Work,
    train,
)


@dataclass(frozen=True)
class Histogram(Work):
    """Shares of the labels among a client's examples."""

    classes: int = 10

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:  # noqa: ARG002
        batch = shard.whole()
        return {"shares": batch.shares(torch.float32) @ one_hot(batch.y, self.classes).float()}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:  # noqa: ARG002
        return {"shares": Promise((self.classes,), low=0.0, high=1.0)}


@dataclass(frozen=True)
class Remembered(State):
    """One model for each client, and the label shares that it sent last."""

    shares: Tensor  # (M, C)


@dataclass(frozen=True)
class NearestNeighbour(Algorithm[Remembered]):
    """Each client trains alone, and is served the model of the client with the nearest labels."""

    local: LocalTraining = field(default_factory=LocalTraining)
    histogram: Histogram = field(default_factory=Histogram)

    traits = Traits(only_trains=None)  # clients send more than updates, which noise can't protect

    def init(self, setup: Setup) -> Remembered:
        models = setup.new_models(1).expand(setup.num_clients, -1).clone()
        shares = torch.zeros(setup.num_clients, self.histogram.classes)
        return Remembered(models, torch.arange(setup.num_clients), shares)

    def round(self, state: Remembered, ctx: Context) -> Flow[Remembered]:
        rows = Rows(state.models, ctx.cohort)
        told = yield ctx.request(self.histogram, theta=rows)
        shares = state.shares.index_copy(0, told.clients, told.columns["shares"])
        trained = yield from train(rows, ctx, self.local)
        models = state.models.index_add(0, trained.clients, trained.update)
        return replace(state, models=models, shares=shares)

    def serve(self, state: Remembered, ctx: Context) -> Flow[Served]:
        yield from ()  # asks nobody
        distance = torch.cdist(state.shares, state.shares).fill_diagonal_(torch.inf)
        nearest = distance.argmin(1)
        return Served(Rows(state.models, nearest[ctx.cohort]), state.labels[ctx.cohort])
