"""Residual networks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, TypeAlias

from torch import Tensor, nn

from umbel.checks import check
from umbel.networks.base import Model, check_image

Norm: TypeAlias = Callable[[int], nn.Module]


@dataclass(frozen=True)
class ResNet18(Model):
    """The residual network of He et al. 2016 with 18 layers, for small images.

    As usual for small images, the first convolution is 3x3 and keeps the image's size. By default
    group normalisation replaces batch normalisation, whose statistics differ between clients.
    """

    groups: int = 32  #: number of channel groups in each group normalisation
    norm: Literal["group", "batch"] = "group"  #: the paper's is "batch"

    def __post_init__(self) -> None:
        fine = self.groups >= 1 and 64 % self.groups == 0
        check(fine, "groups", self.groups, "a divisor of 64, the number of channels")

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        shape = tuple(input_shape)
        check_image(shape)
        layers: list[nn.Module] = [
            nn.Conv2d(shape[0], 64, 3, padding=1, bias=False),
            self._norm(64),
            nn.ReLU(),
        ]
        for channels_in, channels_out in pairwise((64, 64, 128, 256, 512)):
            stride = 1 if channels_in == channels_out else 2
            layers.append(_Residual(channels_in, channels_out, stride, self._norm))
            layers.append(_Residual(channels_out, channels_out, 1, self._norm))
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, num_outputs)]
        return nn.Sequential(*layers, *head)

    def _norm(self, channels: int) -> nn.Module:
        batch = self.norm == "batch"
        return nn.BatchNorm2d(channels) if batch else nn.GroupNorm(self.groups, channels)


class _Residual(nn.Module):
    """Two convolutions, added to the input."""

    def __init__(self, channels_in: int, channels_out: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False),
            norm(channels_out),
            nn.ReLU(),
            nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False),
            norm(channels_out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            narrow = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
            self.shortcut = nn.Sequential(narrow, norm(channels_out))

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels_in, H, W) -> (B, channels_out, H / stride, W / stride)."""
        added: Tensor = self.path(x) + self.shortcut(x)
        return added.relu()
