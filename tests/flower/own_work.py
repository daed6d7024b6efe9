"""A work that is not umbel's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from umbel.client.batches import Shard
from umbel.client.net import Net
from umbel.client.work import Promise, Work


@dataclass(frozen=True)
class Own(Work):
    """Counts its examples."""

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        del net, sent
        return {"count": shard.num_examples}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        del sent
        return {"count": Promise((), torch.int64)}
