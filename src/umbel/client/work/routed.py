"""Any work with a model whose adapters are mixtures of experts: the client's side of FedLEASE."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from umbel.checks import check
from umbel.client.batches import Shard
from umbel.client.layout import Layout
from umbel.client.net import Net
from umbel.client.routing import Routing
from umbel.client.work.base import Footprint, Promise, Work

MOST_EXPERTS = 1000
"""Largest number of experts in a mixture."""


@dataclass(frozen=True)
class Routed(Work):
    """Do the work `of` with `theta`, a model of `num_experts` experts whose layout is `Routing`'s.

    Instead, `theta` may be only the client's own part, with the other experts, which the client
    does not train, in `others` (O,). Then the update is the update of the own part.
    """

    around: ClassVar[str] = "of"

    of: Work  #: the work with such a model
    num_experts: int  #: M

    def __post_init__(self) -> None:
        number = self.num_experts
        check(2 <= number <= MOST_EXPERTS, "num_experts", number, f"in 2 to {MOST_EXPERTS}")

    def allows(self, setting: str, value: object) -> bool:
        """There may be fewer experts, whose number a method finds in its rounds."""
        if setting == "num_experts":
            return isinstance(value, int) and value <= self.num_experts
        return super().allows(setting, value)

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        theta, cut = sent["theta"], len(sent["theta"])
        if "others" in sent:
            theta = torch.cat([theta, sent["others"]])
        # This check comes before any allocation of a size that a request claims.
        size = self.widths(net.layout)[1]
        check(len(theta) == size, "theta", len(theta), f"{size:,}, the size of such a model")
        reply = self.of(net.routed(self.num_experts), shard, {**sent, "theta": theta})
        return {name: v[:cut] if name == "update" else v for name, v in reply.items()}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        return self.of.promises(sent)

    def widths(self, layout: Layout) -> tuple[int, ...]:
        """Return the numbers of values of the own part, and of the whole model."""
        routing = Routing(layout, self.num_experts)
        return routing.own.num_values, routing.layout.num_values

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:
        inside = self.of.footprint(sent)
        return replace(inside, models=inside.models * self.num_experts)
