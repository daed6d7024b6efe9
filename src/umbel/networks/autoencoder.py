"""Autoencoders that compress and restore their inputs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Literal

import torch
from torch import Tensor, nn

from umbel.checks import check, check_least
from umbel.networks.base import Model, check_image

Norm = Literal["batch", "group"]

SLOPE = 0.3  # negative slope of every leaky ReLU


@dataclass(frozen=True)
class CSIAutoencoder(Model):
    """Compresses channel state matrices to a code and restores them.

    Kim et al. 2024, F.6: a code of 1,024 values (compression ratio 2, their CD1) gives 4.2 million
    parameters, and a code of 16 values (ratio 128, CD2) 72 thousand. The encoder's parameters are
    `encoder.*`, so that clusters can share them as in the paper. Two details are not in the paper:
    convolutions have no bias if a normalisation follows, and each convolution that keeps the size
    is normalised and followed by a leaky ReLU, in the residual blocks, too. With `norm = "group"`,
    channels of each example are normalised instead of batches, so that clients can be batched.
    """

    code: int = 1024  #: N_cl, number of values of a code
    norm: Norm = "batch"  #: how layers are normalised

    def __post_init__(self) -> None:
        check_least(self, 1, "code")

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        shape = tuple(input_shape)
        check_image(shape)
        expected = f"a shape of {num_outputs} values, the number to restore"
        check(prod(shape) == num_outputs, "model", shape, expected)
        module = _Autoencoder(shape, self.code, self.norm)
        for part in module.modules():
            if isinstance(part, nn.Conv2d | nn.Linear):
                nn.init.xavier_uniform_(part.weight)
        return module


class _Autoencoder(nn.Module):
    def __init__(self, shape: Sequence[int], code: int, norm: Norm) -> None:
        super().__init__()
        channels = shape[0]
        blocks = _SideBySide(
            _path(channels, [(channels, 3, 3), (channels, 1, 9), (channels, 9, 1)], norm),
            _path(channels, [(channels, 3, 3)], norm, active=False),
            _path(channels, [(channels, 3, 3), (channels, 1, 3), (channels, 3, 1)], norm),
        )
        refine = nn.Conv2d(3 * channels, channels, 1)
        last = nn.Linear(prod(shape), code)
        self.encoder = nn.Sequential(blocks, refine, nn.Flatten(), last)
        self.decoder = nn.Sequential(
            nn.Linear(code, prod(shape)),
            nn.Unflatten(1, tuple(shape)),
            _path(channels, [(channels, 5, 5)], norm),
            *(_ResidualBlock(channels, width, norm) for width in (9, 7, 5)),  # N_dc
            nn.LeakyReLU(SLOPE),
        )

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, H, W) -> the same."""
        restored: Tensor = self.decoder(self.encoder(x))
        return restored


class _ResidualBlock(nn.Module):
    """Two paths of convolutions, combined and added to the input."""

    def __init__(self, channels: int, width: int, norm: Norm) -> None:
        super().__init__()
        self.paths = _SideBySide(
            _path(channels, [(width, 3, 3), (width, 1, 9), (width, 9, 1)], norm),
            _path(channels, [(width, 1, 5), (width, 5, 1)], norm),
        )
        self.combine = nn.Conv2d(2 * width, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels, H, W) -> the same."""
        added: Tensor = self.combine(self.paths(x)) + x
        return added


class _SideBySide(nn.Module):
    """Outputs of several modules for one input, channel after channel."""

    def __init__(self, *modules: nn.Module) -> None:
        super().__init__()
        self.each = nn.ModuleList(modules)

    def forward(self, x: Tensor) -> Tensor:
        """(B, C, H, W) -> (B, sum of all channels, H, W)."""
        return torch.cat([module(x) for module in self.each], dim=1)


def _path(
    channels: int, convolutions: Sequence[tuple[int, int, int]], norm: Norm, active: bool = True
) -> nn.Module:
    """Convolutions to (channels, height, width) that keep the size.

    Each is normalised and, if the path is `active`, followed by a leaky ReLU.
    """
    layers: list[nn.Module] = []
    for channels_out, height, width in convolutions:
        layers += [
            nn.Conv2d(channels, channels_out, (height, width), padding="same", bias=False),
            nn.BatchNorm2d(channels_out) if norm == "batch" else nn.GroupNorm(1, channels_out),
            nn.LeakyReLU(SLOPE) if active else nn.Identity(),
        ]
        channels = channels_out
    return nn.Sequential(*layers)
