"""Fine-tune the model that a client is served, and keep every version as its own model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from umbel.client.batches import Shard
from umbel.client.layout import spans_of
from umbel.client.net import Net
from umbel.client.work.base import MEMORY, Promise, Work
from umbel.client.work.local_training import LocalTraining


@dataclass(frozen=True)
class PersonalTraining(Work):
    """Continue to train a client's latest version of its model, and keep both versions.

    The client's memory (E, P) holds the versions so far, and the latest one is trained; without a
    memory, the received model `theta` (P,) is trained. The reply is the memory (E + 1, P) with the
    new version last. If the result of training is not finite, or has a weight of a larger magnitude
    than `max_value`, the new version is a copy of the version before, and `diverged` is 1.
    """

    around: ClassVar[str] = "local"

    local: LocalTraining  #: mini-batches, learning rate and optimizer
    parameters: tuple[str, ...] = ()  #: patterns of the parameters that are trained; (): all
    #: largest magnitude of a weight of a version, as the server uses no reply with a larger one;
    #: statistics have the scale of the client's data; None: any finite number
    max_value: float | None = None

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        kept = sent.get(MEMORY)
        start = sent["theta"] if kept is None else kept[-1]
        descent = self.local.descent
        if self.parameters:
            tuned = net.layout.mask(self.parameters, "parameters")
            descent = replace(descent, spans=spans_of(tuned))
        trained = start + net.descend(start, shard, descent)
        fine = trained.isfinite()
        if self.max_value is not None:
            cut = net.layout.num_weights
            fine = torch.cat([fine[:cut] & (trained[:cut].abs() <= self.max_value), fine[cut:]])
        new = torch.where(fine.all(), trained, start)[None]
        memory = new if kept is None else torch.cat([kept, new])
        return {MEMORY: memory, "diverged": (~fine.all()).long()}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        versions = sent[MEMORY][0] if MEMORY in sent else 0
        diverged = Promise((), torch.int64, low=0, high=1)
        return {MEMORY: Promise((versions + 1, *sent["theta"])), "diverged": diverged}
