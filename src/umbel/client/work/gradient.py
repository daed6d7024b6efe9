"""The gradient of the training loss at one model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from umbel.client.batches import Batch, Plan, Shard
from umbel.client.net import Net
from umbel.client.work.base import COUNT, Promise, Work
from umbel.client.work.local_training import Everything, check_batch_size, shuffled


@dataclass(frozen=True)
class Gradient(Work):
    """Gradient of the mean training loss at the received model, on one mini-batch or on all."""

    batch_size: int | Everything = "all"

    def __post_init__(self) -> None:
        check_batch_size(self.batch_size)

    def plan(self, num_examples: int, seed: int) -> Plan:
        if self.batch_size == "all":
            return super().plan(num_examples, seed)
        return shuffled(num_examples, self.batch_size, 1, np.random.default_rng(seed))[:1]

    @property
    def draws(self) -> bool:
        return self.batch_size != "all"

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        theta = sent["theta"]
        if self.batch_size == "all":
            gradient = gradient_of_all(net, shard, theta)
        else:
            (batch,) = shard.batches()
            gradient = padded_gradient(net, theta, batch)
        return {"gradient": gradient, "num_examples": shard.num_examples}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        return {"gradient": Promise(tuple(sent["theta"])), "num_examples": COUNT}

    def pass_size(self, sent: Mapping[str, torch.Size], num_examples: int, batch_width: int) -> int:
        if self.batch_size != "all":
            return batch_width
        return super().pass_size(sent, num_examples, batch_width)


def padded_gradient(net: Net, theta: Tensor, batch: Batch) -> Tensor:
    """Gradient (P,) on one batch, 0 for the values that are not trained."""
    gradient, rest = net.gradient(theta, batch)
    return torch.cat([gradient, torch.zeros_like(rest)]) if len(rest) else gradient


def gradient_of_all(net: Net, shard: Shard, theta: Tensor) -> Tensor:
    """Gradient (P,) of the mean loss over all training examples."""
    total, size = torch.zeros_like(theta), shard.size()
    for batch in shard.everything():
        share = (batch.size() / size).to(theta.dtype)
        total = total + share * padded_gradient(net, theta, batch)
    return total
