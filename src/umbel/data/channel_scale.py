"""How the channels of recordings became comparable, so that newcomers' become so likewise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from math import isfinite
from typing import Any

import torch
from torch import Tensor

CHANNELS = "channels"


@dataclass(frozen=True)
class ChannelScale:
    """The mean and the deviation that each channel, or feature of a window, had before."""

    mean: tuple[float, ...]  #: (C,)
    deviation: tuple[float, ...]  #: (C,) 1 where a channel is constant

    def __call__(self, x: Tensor, before: ChannelScale | None = None) -> Tensor:
        """Inputs (n, C, ...) as the run's are; `before` is what they were scaled by already."""
        columns = (1, -1, *(1,) * (x.dim() - 2))
        values = x.double()
        if before is not None:
            values = values * _row(before.deviation, columns) + _row(before.mean, columns)
        return ((values - _row(self.mean, columns)) / _row(self.deviation, columns)).float()

    def plain(self) -> dict[str, Any]:
        """As JSON has it."""
        return {CHANNELS: asdict(self)}

    @classmethod
    def from_plain(cls, table: Mapping[str, Any]) -> ChannelScale:
        """The inverse of `plain`. Raises `ValueError` or `LookupError` for anything else."""
        mean, deviation = (tuple(table[CHANNELS][name]) for name in ("mean", "deviation"))
        numbers = (*mean, *deviation)
        fine = all(type(each) in (int, float) and isfinite(each) for each in numbers)
        if not fine or len(mean) != len(deviation) or not all(each > 0 for each in deviation):
            raise ValueError("no mean and deviation of each channel")
        return cls(tuple(map(float, mean)), tuple(map(float, deviation)))


def _row(values: tuple[float, ...], shape: tuple[int, ...]) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).reshape(shape)
