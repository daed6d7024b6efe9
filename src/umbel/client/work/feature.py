"""A part of a gradient or an update, for clustering: the client's side of CFL-GP."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from umbel.client.batches import Shard
from umbel.client.net import Net
from umbel.client.work.base import Promise, Work


@dataclass(frozen=True)
class Feature(Work):
    """Reply with some `coordinates` (J,) of the gradient or update of `of`: `feature` (J,).

    Without coordinates, the feature is the whole gradient or update. Kim et al. 2024, eq. 80.
    """

    relays: ClassVar[bool] = True
    around: ClassVar[str] = "of"

    of: Work  #: the work that computes the gradient or update

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        reply = self.of(net, shard, sent)
        direction = reply["gradient"] if "gradient" in reply else reply["update"]
        if "coordinates" in sent:
            direction = direction.index_select(0, sent["coordinates"])
        return {"feature": direction}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        return {"feature": Promise(tuple(sent.get("coordinates", sent["theta"])))}
