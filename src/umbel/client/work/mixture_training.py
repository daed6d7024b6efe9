"""Train every model of a mixture by its shares of the examples: the client's side of FedEM
and FedRC."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.func import vmap

from umbel.client.batches import Batch, Shard
from umbel.client.net import Net
from umbel.client.work.base import COUNT, MEMORY, Cost, Footprint, Promise, Work
from umbel.client.work.local_training import LocalTraining
from umbel.client.work.mixture_weights import (
    LABEL_SHARES,
    MixtureWeights,
    mean_shares,
    shares_of_all,
)


@dataclass(frozen=True)
class MixtureTraining(Work):
    """Train each of `models` (K, P) as `local` says, on losses that are weighted by q_i(k).

    q_i(k) is the probability that example i belongs to model k, computed from the received models
    and the client's weights (K,), its memory; the means of q_i(k) over the examples are the next
    weights.
    """

    around: ClassVar[str] = "local"

    local: LocalTraining  #: mini-batches, learning rate and optimizer

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        models, descent = sent["models"], self.local.descent
        slices = list(shares_of_all(net, sent, shard))
        table = torch.cat([q for _, q in slices], 1)  # q_i(k) of all examples i: (K, n)
        factors = table[:, shard.places(shard.planned.rows)]
        update = net.each(
            lambda theta, own: net.descend(theta, shard, descent, own), models, factors
        )
        memory = mean_shares(slices).to(sent[MEMORY].dtype)
        reply = {"update": update, "num_examples": shard.num_examples, MEMORY: memory}
        if LABEL_SHARES in sent:
            reply[LABEL_SHARES] = self._by_label(slices, sent[LABEL_SHARES]) / shard.num_examples
        return reply

    def _by_label(self, slices: Iterable[tuple[Batch, Tensor]], like: Tensor) -> Tensor:
        """The sums (K, C) of q_i(k) over the examples i with each label."""
        labels = torch.arange(like.shape[1], device=like.device)
        sums = torch.zeros_like(like, dtype=torch.float64)
        for batch, q in slices:
            member = batch.y == labels[:, None]  # (C, B)
            sums = sums + vmap(vmap(batch.total))(q.double()[:, None] * member)
        return sums.to(like.dtype)

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        update = Promise(tuple(sent["models"]))
        reply = {"update": update, "num_examples": COUNT, **MixtureWeights().promises(sent)}
        if LABEL_SHARES in sent:
            reply[LABEL_SHARES] = Promise(tuple(sent[LABEL_SHARES]), low=0, high=1, total=1)
        return reply

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:
        num_models = sent["models"][0]
        return Footprint(num_models, num_models, num_models)

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:
        num_models, training = sent["models"][0], self.local.cost(num_examples, sent)
        return training * num_models + MixtureWeights().cost(num_examples, sent)
