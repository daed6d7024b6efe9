"""The mean training loss of many models."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from umbel.checks import check
from umbel.client.batches import SLICE, Batch, Plan, Shard
from umbel.client.net import Net
from umbel.client.work.base import Promise, Work
from umbel.client.work.local_training import shuffled

TILE = 64
"""Models are evaluated at most this many side by side, to bound memory."""


@dataclass(frozen=True)
class MeanLoss(Work):
    """Mean training loss of each of `models` (K, P), all on the same examples: (K,)."""

    max_examples: int | None = None  # draw this many at most; default: all

    def __post_init__(self) -> None:
        limit = self.max_examples
        check(limit is None or limit >= 1, "max_examples", limit, "1 or more")

    def plan(self, num_examples: int, seed: int) -> Plan:
        if self.max_examples is None:
            return super().plan(num_examples, seed)
        return shuffled(num_examples, self.max_examples, 1, np.random.default_rng(seed))[:1]

    @property
    def draws(self) -> bool:
        return self.max_examples is not None

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        batches = shard.everything() if self.max_examples is None else shard.batches()
        return {"losses": mean_losses(net, sent["models"], batches)}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        return {"losses": Promise((sent["models"][0],), torch.float64)}

    def pass_size(self, sent: Mapping[str, torch.Size], num_examples: int, batch_width: int) -> int:
        examples = min(SLICE, num_examples) if self.max_examples is None else batch_width
        return examples * min(TILE, sent["models"][0])


def mean_losses(net: Net, models: Tensor, batches: Iterator[Batch]) -> Tensor:
    """Mean loss of each of `models` (K, P) over the batches: (K,), in double precision."""
    total = torch.zeros(len(models), dtype=torch.float64, device=models.device)
    count = torch.zeros((), dtype=torch.float64, device=models.device)
    for batch in batches:
        total = total + torch.cat(
            [
                net.each(lambda theta, b=batch: b.total(net.losses(theta, b).double()), tile)  # type: ignore[misc]
                for tile in torch.split(models, TILE)
            ]
        )
        count = count + batch.size()
    return total / count
