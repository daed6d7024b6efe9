"""Train a model through a personal model near it: the client's side of pFedMe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from umbel.client.batches import Shard
from umbel.client.descent import Moreau
from umbel.client.net import Net
from umbel.client.work.base import MEMORY, Batching, Cost, Footprint, Promise, Work
from umbel.client.work.local_training import LocalTraining


@dataclass(frozen=True)
class MoreauTraining(Work):
    """Work of pFedMe: train a model and a personal model near it (Dinh et al. 2020).

    It descends the Moreau envelope of the loss, min_theta f(theta) + pull/2 |theta - w|^2. For each
    mini-batch of `local`, theta takes `personal_steps` gradient steps towards the minimum. Then w
    takes a step against the envelope's gradient, pull (w - theta), at the learning rate of `local`.
    theta starts at the received model and continues from one mini-batch to the next; the last theta
    is the client's memory (P,).
    """

    local: LocalTraining  #: mini-batches and learning rate of w
    pull: float  #: lambda, the weight of the penalty
    personal_steps: int  #: K, number of steps of theta on each mini-batch
    personal_lr: float  #: learning rate of those steps

    def at_round(self, number: int) -> MoreauTraining:
        """The same with the learning rate of this round, counted from 0."""
        return replace(self, local=self.local.at_round(number))

    @property
    def batching(self) -> Batching:
        return replace(self.local.batching, passes=self.personal_steps)

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        rule = Moreau(self.local.descent, self.pull, self.personal_steps, self.personal_lr)
        update, personal = net.descend(sent["theta"], shard, rule).unbind(-2)
        counted = {"update": update, "num_examples": shard.num_examples}
        return {**counted, MEMORY: sent["theta"] + personal}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        return {**self.local.promises(sent), MEMORY: Promise(tuple(sent["theta"]))}

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:
        return replace(self.local.footprint(sent), models=2)

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:
        return self.local.cost(num_examples, sent) * self.personal_steps
