"""A work and metrics that are not umbel's."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch
from numpy.typing import NDArray
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


def errors(targets: NDArray[Any], predictions: NDArray[Any]) -> float:
    """A metric of one's own: how many are wrong."""
    return float((predictions.argmax(1) != targets).sum())


def endless(targets: NDArray[Any], predictions: NDArray[Any]) -> float:
    """A metric that takes a long time, whatever is raised in it."""
    for _ in range(50):
        with suppress(Exception):
            time.sleep(0.1)
    return errors(targets, predictions)
