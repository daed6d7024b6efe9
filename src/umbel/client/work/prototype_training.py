"""Train a client's own model near common means of features: the client's side of FedProto."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from umbel.checks import check
from umbel.client.batches import Batch, Shard
from umbel.client.net import Net
from umbel.client.objectives import CLASSIFICATION
from umbel.client.work.base import COUNT, MEMORY, Cost, Promise, Work
from umbel.client.work.local_training import LocalTraining


@dataclass(frozen=True)
class PrototypeTraining(Work):
    """Train the client's own model, whose features are held near `prototypes` (C, F).

    To each example's loss is added weight times the mean square of the difference of its features
    and its class's prototype, for the classes that are `known` (C,). The reply has the model as the
    memory (P,), the client's `means` (C, F) of features by class after training, in evaluation
    mode, and how many `examples` (C,) each is of.
    """

    local: LocalTraining  #: mini-batches, learning rate and optimizer
    weight: float  #: lambda, the weight of the difference

    @property
    def inner(self) -> Work:
        return self.local

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        check_labels(net, shard)
        theta, prototypes, known = sent[MEMORY], sent["prototypes"], sent["known"]

        def terms(batch: Batch) -> Callable[[Tensor], Tensor]:
            goal, held = (rows.index_select(0, batch.y) for rows in (prototypes, known))
            return lambda z: self.weight * held * (z - goal).square().mean(1)

        after = theta + net.descend_with(theta, shard, self.local.descent, terms)
        return {MEMORY: after, **class_means(net, after, shard, prototypes)}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        return {
            MEMORY: Promise(tuple(sent[MEMORY])),
            "means": Promise(tuple(sent["prototypes"])),
            "num_examples": COUNT,
            "examples": Promise(tuple(sent["known"]), torch.int64, low=0),
        }

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:
        return super().cost(num_examples, sent) + Cost(losses=num_examples)


def check_labels(net: Net, shard: Shard) -> None:
    """Raise `UsageError` unless each example has one label."""
    fine = net.objective == CLASSIFICATION and shard.y.dim() == 1
    check(fine, "objective", net.objective, "classification with one label an example")


def class_means(net: Net, theta: Tensor, shard: Shard, like: Tensor) -> dict[str, Tensor]:
    """The `means` (C, F) of features by class, `like` prototypes, and their numbers of examples."""
    classes = torch.arange(len(like), device=theta.device)
    sums, counts = torch.zeros_like(like), torch.zeros_like(classes)
    for batch in shard.everything():
        mine = batch.y[:, None] == classes  # (B, C)
        mine = mine if batch.keep is None else mine & batch.keep[:, None]
        sums = sums + mine.to(theta.dtype).t() @ net.features(theta, batch.x)
        counts = counts + mine.sum(0)
    means = sums / counts.clamp(min=1)[:, None]
    return {"means": means, "examples": counts, "num_examples": shard.num_examples}
