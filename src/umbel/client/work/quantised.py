"""Replies with fewer decimal places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from umbel.checks import check
from umbel.client.batches import Shard, wide
from umbel.client.net import Net
from umbel.client.work.base import MEMORY, Promise, Work

MOST_DECIMALS = 30
"""Number of decimal places that still matter in single precision."""


@dataclass(frozen=True)
class Quantised(Work):
    """The reply of the work `of`, with its gradient or update cut to some decimal places.

    Kim et al. 2024, E.1 "Decimal point quantization": further digits are set to 0, not rounded.
    """

    relays: ClassVar[bool] = True
    around: ClassVar[str] = "of"

    of: Work  #: the work whose reply is cut
    digits: int  #: number of decimal places

    def __post_init__(self) -> None:
        check(0 <= self.digits <= MOST_DECIMALS, "digits", self.digits, f"in 0 to {MOST_DECIMALS}")

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        scale = 10.0**self.digits
        reply = self.of(net, shard, sent)
        to_server = reply.keys() - {MEMORY}
        floats = {name for name in to_server if reply[name].is_floating_point()}
        return reply | {name: _cut(reply[name], scale) for name in floats}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        return self.of.promises(sent)


def _cut(values: Tensor, scale: float) -> Tensor:
    """The values without further digits; large numbers have no further digits."""
    exact = values.to(wide(values.dtype))
    scaled = exact * scale
    few = scaled.abs() < 1 / torch.finfo(exact.dtype).eps
    return torch.where(few, scaled.trunc() / scale, exact).to(values.dtype)
