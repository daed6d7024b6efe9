"""Local training, together with the gradient before it, in one reply."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from umbel.client.batches import Plan, Shard, Steps
from umbel.client.net import Net
from umbel.client.work.base import Batching, Cost, Footprint, Promise, Work
from umbel.client.work.gradient import Gradient, gradient_of_all, padded_gradient
from umbel.client.work.local_training import LocalTraining, batch_width


@dataclass(frozen=True)
class TrainAndGradient(Work):
    """The reply of `local`, and `gradient` (P,) at the received model.

    A mini-batch of the gradient is the one that `gradient` would draw by itself; local training
    draws the same mini-batches as by itself.
    """

    relays: ClassVar[bool] = True
    around: ClassVar[str] = "local"

    local: LocalTraining  #: how clients train
    gradient: Gradient = field(default_factory=Gradient)  #: the gradient that clients send beside

    @property
    def batching(self) -> Batching:
        if self.gradient.batch_size == "all":
            return self.local.batching
        return Batching(self._plan, shape=self._shape, fewest=self._fewest)

    def _plan(self, num_examples: int, seed: int) -> Plan:
        """The mini-batch of the gradient, and then those of local training."""
        plan = np.full(self._shape(num_examples), -1, dtype=np.int64)
        for rows, work in ((plan[:1], self.gradient), (plan[1:], self.local)):
            drawn = work.batching.plan(num_examples, seed)
            rows[:, : drawn.shape[1]] = drawn
        return plan

    def _shape(self, num_examples: int) -> tuple[int, int]:
        steps, width = self.local.shape(num_examples)
        return 1 + steps, max(width, batch_width(num_examples, self.gradient.batch_size))

    def _fewest(self, num_examples: int) -> int:
        _, width = self.local.shape(num_examples)
        return min(width, batch_width(num_examples, self.gradient.batch_size))

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        theta = sent["theta"]
        if self.gradient.batch_size == "all":
            gradient = gradient_of_all(net, shard, theta)
        else:
            gradient = padded_gradient(net, theta, next(shard.batches()))
            planned = Steps(shard.planned.rows[1:], shard.planned.steps[1:])
            shard = replace(shard, planned=planned)
        return {**self.local(net, shard, sent), "gradient": gradient}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        return {**self.local.promises(sent), "gradient": Promise(tuple(sent["theta"]))}

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:
        return self.gradient.footprint(sent) | self.local.footprint(sent)

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:
        return self.local.cost(num_examples, sent) + self.gradient.cost(num_examples, sent)
