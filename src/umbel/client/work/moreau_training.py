"""Train a model through a personal model near it: the client's side of pFedMe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from umbel.client.batches import Batch, Shard
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
        received, cut = sent["theta"], net.layout.num_weights
        model = personal = received
        inside = self.local.descent.start(received[:cut])
        for batch in shard.batches():
            personal = self._personal(net, model, personal, batch)
            gradient = self.pull * (model[:cut] - personal[:cut])
            model, inside = self.local.descent.step(model, gradient, personal[cut:], inside, batch)
        counted = {"update": model - received, "num_examples": shard.num_examples}
        return {**counted, MEMORY: personal}

    def _personal(self, net: Net, model: Tensor, personal: Tensor, batch: Batch) -> Tensor:
        """theta (P,) after its steps on this batch, near w = model."""
        theta, cut = personal, net.layout.num_weights
        for _ in range(self.personal_steps):
            gradient, rest = net.gradient(theta, batch)
            weights = theta[:cut]
            slope = gradient + self.pull * (weights - model[:cut])
            theta = torch.cat([weights - self.personal_lr * slope, rest])
        (theta,) = batch.unless_empty((theta,), (personal,))
        return theta

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        return {**self.local.promises(sent), MEMORY: Promise(tuple(sent["theta"]))}

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:
        return replace(self.local.footprint(sent), models=2)

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:
        return self.local.cost(num_examples, sent) * self.personal_steps
