"""Small federations, and parts of networks, that engines are tried on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from torch import Tensor, nn

from umbel.data.federation import Federation


def clients(x: Any, y: Any, count: int = 3) -> Federation:
    return Federation.from_arrays([(x, y)] * count, test_fraction=0.2)


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).normal(size=shape)


LABELS = np.arange(12) % 3

UNKNOWN = (
    r"Net: forward or the objective uses a tensor of shape \({}\) that requires gradients and is "
    r"no parameter of the module, .* put layers in nn\.ModuleList, .* nn\.ParameterList"
)


class Doing(nn.Module):
    """A linear layer, and something that is done with what it gives."""

    def __init__(self, then: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer, self.then = nn.Linear(4, 3), then

    def forward(self, x: Tensor) -> Tensor:
        return self.then(self.layer(x))
