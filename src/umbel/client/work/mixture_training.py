"""Train every model of a mixture by its shares of the examples: the client's side of FedEM."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from umbel.client.batches import Shard
from umbel.client.net import Net
from umbel.client.work.base import COUNT, MEMORY, Cost, Footprint, Promise, Work
from umbel.client.work.local_training import LocalTraining
from umbel.client.work.mixture_weights import MixtureWeights, mean_shares, shares_of_all


@dataclass(frozen=True)
class MixtureTraining(Work):
    """Train each of `models` (K, P) as `local` says, on losses that are weighted by q_i(k).

    q_i(k) is the probability that example i belongs to model k, computed from the received models
    and the client's weights (K,), its memory; the means of q_i(k) over the examples are the next
    weights.
    """

    local: LocalTraining  #: mini-batches, learning rate and optimizer

    @property
    def inner(self) -> Work:
        return self.local

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        models, descent = sent["models"], self.local.descent
        slices = list(shares_of_all(net, models, sent[MEMORY], shard))
        table = torch.cat([q for _, q in slices], 1)  # q_i(k) of all examples i: (K, n)
        factors = table[:, shard.places(shard.planned.rows)]
        update = net.each(
            lambda theta, own: net.descend(theta, shard, descent, own), models, factors
        )
        memory = mean_shares(slices).to(sent[MEMORY].dtype)
        return {"update": update, "num_examples": shard.num_examples, MEMORY: memory}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        update = Promise(tuple(sent["models"]))
        return {"update": update, "num_examples": COUNT, **MixtureWeights().promises(sent)}

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:
        num_models = sent["models"][0]
        return Footprint(num_models, num_models, num_models)

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:
        num_models, training = sent["models"][0], self.local.cost(num_examples, sent)
        return training * num_models + MixtureWeights().cost(num_examples, sent)
