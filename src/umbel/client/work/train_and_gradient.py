"""Local training, together with the gradient before it, in one reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from umbel.client.batches import Shard
from umbel.client.net import Net
from umbel.client.work.base import Cost, Footprint, Promise, Work
from umbel.client.work.gradient import Gradient, gradient_of_all
from umbel.client.work.local_training import LocalTraining


@dataclass(frozen=True)
class TrainAndGradient(Work):
    """The reply of `local`, and `gradient` (P,) on all training data at the received model."""

    local: LocalTraining  #: how clients train

    @property
    def inner(self) -> Work:
        return self.local

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        gradient = gradient_of_all(net, shard, sent["theta"])
        return {**self.local(net, shard, sent), "gradient": gradient}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        return {**self.local.promises(sent), "gradient": Promise(tuple(sent["theta"]))}

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:
        return Footprint() | self.local.footprint(sent)

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:
        return self.local.cost(num_examples, sent) + Gradient().cost(num_examples, sent)
