"""A network whose outputs are not those of the model that it is given is refused."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear

import umbel
from tests.preflight.fitted import LABELS, clients, numbers
from umbel.engines import make_engine


class Holding(nn.Module):
    """Uses its first parameter by another way than its attribute."""

    def __init__(self, way: str) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.randn(8, 4) / 2)
        self.drop, self.layer = nn.Dropout(0.5), nn.Linear(8, 3)
        ways: dict[str, Callable[[Tensor], Tensor]] = {
            "list": Listed([self.first]),
            "ParameterList": Listed(nn.ParameterList([self.first])),
            "partial": partial(linear, weight=self.first),
        }
        self.then = ways[way]

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(self.drop(self.then(x).tanh()))
        return out


class Listed(nn.Module):
    """Multiplies by the first of its weights."""

    def __init__(self, weights: Any) -> None:
        super().__init__()
        self.weights = weights

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weights[0])


@pytest.mark.parametrize("way", ["list", "partial"])
def test_parameters_that_a_module_holds_beside_its_attributes_are_refused(
    way: str,
) -> None:
    federation = clients(numbers(12, 4), LABELS)
    said = (
        r"not those that plain PyTorch .* in a list, dict, functools\.partial.* nn\.ParameterList"
    )
    with pytest.raises(umbel.UsageError, match=said):
        make_engine(umbel.Net(lambda: Holding(way)), federation)
    make_engine(umbel.Net(lambda: Holding("ParameterList")), federation)
