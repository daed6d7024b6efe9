"""The share of a client's examples that each of many models fits best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from umbel.client.batches import Shard
from umbel.client.net import Net
from umbel.client.work.base import COUNT, Cost, Footprint, Promise, Work
from umbel.client.work.loss_bounds import clipped
from umbel.client.work.mixture_weights import mean_shares


@dataclass(frozen=True)
class BestShares(Work):
    """For each of `models` (K, P), the share of the training examples on which its loss is lowest.

    The reply is `shares` (K,), whose sum is 1, and `num_examples`. If models have the same loss,
    the first counts.
    """

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        models, slices = sent["models"], []
        numbers = torch.arange(len(models), device=models.device)[:, None]
        for batch in shard.everything():
            losses = clipped(net.each(lambda theta, b=batch: net.losses(theta, b), models))
            slices.append((batch, (losses.argmin(0) == numbers).to(losses.dtype)))
        return {"shares": mean_shares(slices), "num_examples": shard.num_examples}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        shares = Promise((sent["models"][0],), torch.float64, low=0, high=1, total=1)
        return {"shares": shares, "num_examples": COUNT}

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:
        return Footprint(sent["models"][0])

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:
        return Cost(losses=sent["models"][0] * num_examples)
