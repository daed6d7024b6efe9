"""The scale of recordings' channels, saved to scale newcomers' channels in the same way."""

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
    """The original mean and standard deviation of each channel, or feature of a window."""

    mean: tuple[float, ...]  #: (C,) mean of each channel
    deviation: tuple[float, ...]  #: (C,) standard deviation; 1 if a channel is constant

    def __call__(self, x: Tensor) -> Tensor:
        """Scale recorded inputs (n, C, ...) to mean 0 and deviation 1."""
        mean, deviation = self._over(x)
        return ((x.double() - mean) / deviation).float()

    def undone(self, x: Tensor) -> Tensor:
        """Recorded inputs (n, C, ...), in double precision: the inverse of the call."""
        mean, deviation = self._over(x)
        return x.double() * deviation + mean

    def plain(self) -> dict[str, Any]:
        """The scale in a form for JSON."""
        return {CHANNELS: asdict(self)}

    @classmethod
    def from_plain(cls, table: Mapping[str, Any]) -> ChannelScale:
        """The inverse of `plain`; it also accepts the inner table of that result.

        Raises `ValueError`, `TypeError` or `LookupError` for anything else.
        """
        within = table.get(CHANNELS, table)
        mean, deviation = (tuple(within[name]) for name in ("mean", "deviation"))
        numbers = (*mean, *deviation)
        fine = all(type(each) in (int, float) and isfinite(each) for each in numbers)
        if not fine or len(mean) != len(deviation) or not all(each > 0 for each in deviation):
            raise ValueError("no mean and deviation of each channel")
        return cls(tuple(map(float, mean)), tuple(map(float, deviation)))

    def _over(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and deviation in shapes that broadcast over the channels of x."""
        form = (1, -1, *(1,) * (x.dim() - 2))
        mean, deviation = (
            torch.tensor(each, dtype=torch.float64) for each in (self.mean, self.deviation)
        )
        return mean.reshape(form), deviation.reshape(form)
