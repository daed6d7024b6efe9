"""The mean training loss of many models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from umbel.checks import check_least
from umbel.client.batches import Batch, Shard
from umbel.client.net import Net
from umbel.client.work.base import UNBATCHED, Batching, Cost, Footprint, Promise, Work
from umbel.client.work.local_training import first_batch
from umbel.client.work.loss_bounds import bounded, promised

TILE = 64
"""Largest number of models evaluated side by side, to bound memory."""


@dataclass(frozen=True)
class MeanLoss(Work):
    """Work of a client that sends the mean training loss (K,) of each of `models` (K, P).

    All models are evaluated on the same examples.
    """

    max_examples: int | None = None  #: largest number of examples, drawn at random; None: all

    def __post_init__(self) -> None:
        check_least(self, 1, "max_examples")

    @property
    def joins(self) -> bool:
        return self.max_examples is None

    @property
    def batching(self) -> Batching:
        return UNBATCHED if self.max_examples is None else first_batch(self.max_examples)

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        batches = shard.everything() if self.max_examples is None else shard.batches()
        return {"losses": mean_losses(net, sent["models"], batches)}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        return {"losses": promised(sent["models"][0])}

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:
        side_by_side = min(TILE, sent["models"][0])
        return Footprint(side_by_side) if self.max_examples is None else Footprint(0, side_by_side)

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:
        judged = min(num_examples, self.max_examples or num_examples)
        return Cost(losses=sent["models"][0] * judged)


def mean_losses(net: Net, models: Tensor, batches: Iterator[Batch]) -> Tensor:
    """Mean loss of each of `models` (K, P) over the batches, in double precision, bounded.

    The shape is (K,), or (C, K) for batches of C clients.
    """
    total = torch.zeros(len(models), dtype=torch.float64, device=models.device)
    if not len(models):
        return total
    count = torch.zeros((), dtype=torch.float64, device=models.device)
    for batch in batches:
        tiles = [
            net.each(lambda theta, b=batch: b.total(net.losses(theta, b).double()), tile)
            for tile in torch.split(models, TILE)
        ]
        total = total + torch.cat(tiles).movedim(0, -1)
        count = count + batch.size()
    return bounded(total / count[..., None])
