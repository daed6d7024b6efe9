"""Channels of images are last in memory where that changes no result."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from umbel.client.net import Net
from umbel.data.federation import Federation
from umbel.preflight.properties import with_channels_last


class AsStored(nn.Module):
    """Reads the values of an image in the order in which they are stored."""

    def forward(self, x: Tensor) -> Tensor:
        return x.as_strided((len(x), x[0].numel()), (x[0].numel(), 1))


class Detached(nn.Module):
    """Keeps no gradient in evaluation."""

    def forward(self, x: Tensor) -> Tensor:
        return x if self.training else x.detach()


def after_convolution(*between: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), *between, nn.Linear(4 * 36, 3))


@pytest.mark.parametrize(
    ("build", "same"),
    [
        (lambda: after_convolution(nn.Flatten()), True),
        (lambda: after_convolution(nn.Dropout(0.5), nn.Flatten()), True),
        (lambda: after_convolution(nn.Dropout2d(0.5), nn.BatchNorm2d(4), nn.Flatten()), True),
        (lambda: after_convolution(AsStored()), False),
        (lambda: after_convolution(nn.Dropout(0.5), AsStored()), False),
        (
            lambda: nn.Sequential(after_convolution(nn.Dropout(0.5), nn.Flatten()), Detached()),
            False,
        ),
    ],
)
def test_modules_that_read_the_order_or_cannot_be_compared_are_refused(
    build: Callable[[], nn.Module], same: bool
) -> None:
    rng = torch.Generator().manual_seed(0)
    x, y = torch.randn(12, 2, 6, 6, generator=rng), torch.arange(12) % 3
    federation = Federation.from_arrays([(x[:6], y[:6]), (x[6:], y[6:])], num_classes=3)
    fast = with_channels_last(Net(build).using("in-place"), federation)
    assert fast.way.channels_last is same
