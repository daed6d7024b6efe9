"""Train a model near another one, from which it does not start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from umbel.client.batches import Shard
from umbel.client.net import Net
from umbel.client.work.base import Promise, Work
from umbel.client.work.local_training import LocalTraining


@dataclass(frozen=True)
class AnchoredTraining(Work):
    """Train `theta` (P,) by f(theta) + pull/2 |theta - anchor|^2, where `anchor` (P,) is sent, too.

    With an anchor equal to theta it is FedProx. The statistics of normalisation layers are not
    pulled.
    """

    around: ClassVar[str] = "local"

    local: LocalTraining  #: mini-batches, learning rate and optimizer
    pull: float  #: weight of the penalty

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        # The pull is one towards theta as it began, and a constant.
        away = self.pull * (sent["theta"] - sent["anchor"])[: net.layout.num_weights]
        near = replace(self.local.descent, proximal=self.pull, constant=away)
        update = net.descend(sent["theta"], shard, near)
        return {"update": update, "num_examples": shard.num_examples}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        return self.local.promises(sent)
