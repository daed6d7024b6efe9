"""A part of a gradient or an update, to cluster by: the client's side of CFL-GP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from umbel.client.batches import Plan, Shard
from umbel.client.net import Net
from umbel.client.work.base import Promise, Work


@dataclass(frozen=True)
class Feature(Work):
    """Those `coordinates` (J,) of the gradient or update that `of` replies: `feature` (J,).

    Kim et al. 2024, eq. 80.
    """

    of: Work

    def plan(self, num_examples: int, seed: int) -> Plan:
        return self.of.plan(num_examples, seed)

    @property
    def draws(self) -> bool:
        return self.of.draws

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        reply = self.of(net, shard, sent)
        direction = reply["gradient"] if "gradient" in reply else reply["update"]
        return {"feature": direction.index_select(0, sent["coordinates"])}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        return {"feature": Promise(tuple(sent["coordinates"]))}

    def pass_size(self, sent: Mapping[str, torch.Size], num_examples: int, batch_width: int) -> int:
        return self.of.pass_size(sent, num_examples, batch_width)
