"""Outputs in another space than the objective's are said before the first round."""

from __future__ import annotations

import logging
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import umbel
from umbel import BINARY, CLASSIFICATION, REGRESSION, Net, Objective
from umbel.preflight.network import check_fit

RNG = np.random.default_rng(0)

X = RNG.normal(size=(40, 5)).astype(np.float32)


def federation(objective: Objective, low: float = -3.0, high: float = 3.0) -> umbel.Federation:
    y = {
        id(CLASSIFICATION): np.arange(40) % 3,
        id(BINARY): (X[:, 0] > 0.5).astype(np.float32),
        id(REGRESSION): np.linspace(low, high, 40, dtype=np.float32),
    }[id(objective)]
    return umbel.Federation.from_arrays([(X, y), (X + 1, y)])


def ending(*last: nn.Module, outputs: int = 3) -> Callable[[], nn.Module]:
    return lambda: nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, outputs), *last)


class Ends(nn.Module):
    def __init__(self, end: Callable[[Tensor], Tensor], outputs: int = 3) -> None:
        super().__init__()
        self.layer, self.end = nn.Linear(5, outputs), end

    def forward(self, x: Tensor) -> Tensor:
        end: Callable[[Tensor], Tensor] = self.end
        return end(self.layer(x))


def said(net: Net, data: umbel.Federation, caplog: pytest.LogCaptureFixture) -> str:
    with caplog.at_level(logging.WARNING):
        check_fit(net, data)
    return caplog.text


@pytest.mark.parametrize(
    ("build", "objective", "expected"),
    [
        (ending(nn.Sigmoid(), outputs=1), BINARY, r"always in [0, 1], as the layer 3 (Sigmoid)"),
        (
            ending(nn.Softmax(dim=1)),
            CLASSIFICATION,
            "always probabilities that sum to 1, as the layer 3 (Softmax)",
        ),
        (lambda: Ends(torch.sigmoid, 1), BINARY, "always in [0, 1], as forward makes them"),
        (ending(nn.ReLU(), outputs=1), BINARY, "always in [0, infinity], as the layer 3 (ReLU)"),
        (lambda: Ends(torch.round), CLASSIFICATION, "every gradient of 2 new models is 0"),
    ],
)
def test_outputs_that_are_squashed_twice_are_said(
    build: Callable[[], nn.Module],
    objective: Objective,
    expected: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert expected in said(Net(build, objective), federation(objective), caplog)


@pytest.mark.parametrize(
    ("last", "low", "high", "expected"),
    [
        (nn.ReLU(), -3.0, 3.0, "[0, infinity], as the layer 3 (ReLU) makes them, and 5"),
        (nn.Sigmoid(), 0.0, 50.0, "which go from 0 to 50"),
    ],
)
def test_targets_that_no_output_reaches_are_said(
    last: nn.Module, low: float, high: float, expected: str, caplog: pytest.LogCaptureFixture
) -> None:
    net = Net(ending(last, outputs=1), REGRESSION)
    assert expected in said(net, federation(REGRESSION, low, high), caplog)


@pytest.mark.parametrize(
    ("build", "objective", "low", "high"),
    [
        (ending(), CLASSIFICATION, 0.0, 0.0),
        (ending(nn.LogSoftmax(dim=1)), CLASSIFICATION, 0.0, 0.0),
        (ending(outputs=1), BINARY, 0.0, 0.0),
        (ending(outputs=1), REGRESSION, -1e6, 1e6),
        (ending(nn.ReLU(), outputs=1), REGRESSION, 0.0, 30.0),
    ],
)
def test_outputs_that_fit_are_not_remarked_on(
    build: Callable[[], nn.Module],
    objective: Objective,
    low: float,
    high: float,
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert said(Net(build, objective), federation(objective, low, high), caplog) == ""
