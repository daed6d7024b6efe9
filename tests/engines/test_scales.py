"""Numbers whose scale is that of the data: what is honest there passes, and a lie does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from torch import Tensor, nn

import umbel
from tests.engines.test_lies import LIAR, Lying
from tests.federations import blobs
from umbel import FedAvg, Federation, LocalTraining, Net, Run
from umbel.algorithms import CFLGP, IFCA, LocalOnly, Oracle, PFedMe, Sharing
from umbel.algorithms.base import Algorithm
from umbel.checks import DivergedError
from umbel.flow import Request

LOCAL = LocalTraining(lr=0.05, epochs=10, batch_size=16)

HERE = umbel.EngineSettings(workers=1)

NET = Net(lambda: nn.Sequential(nn.BatchNorm1d(6), nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)))


def scaled(factors: tuple[float, ...]) -> Federation:
    """Clients of two kinds whose inputs are multiplied by these."""
    found = blobs((32,) * len(factors))
    for split in found.splits:
        for n, factor in enumerate(factors):
            begin = int(split.offsets[n])
            split.x[begin : begin + int(split.sizes[n])] *= factor
    groups = np.array([int(factor != factors[0]) for factor in factors])
    return replace(found, groups=groups)


INCOMES = (3e4,) * 4

ONE_APART = (0.5, 0.5, 0.5, 200.0)


def run_of(method: Algorithm[Any], federation: Federation, net: Net = NET, **more: Any) -> Run:
    return Run(method, federation, net, engine=HERE, **more)


@pytest.mark.parametrize("factors", [INCOMES, ONE_APART], ids=["incomes", "one apart"])
@pytest.mark.parametrize(
    "method",
    [
        FedAvg(LOCAL),
        LocalOnly(LOCAL),
        Oracle(LOCAL),
        PFedMe(local=LOCAL),
        Sharing(FedAvg(LOCAL), kept=("0.*",)),
        IFCA(2, LOCAL),
    ],
    ids=lambda method: type(method).__name__,
)
def test_statistics_of_raw_inputs_are_no_divergence(
    method: Algorithm[Any], factors: tuple[float, ...]
) -> None:
    for _, record in run_of(method, scaled(factors)).rounds(2):
        assert not record.refused
        assert not record.bounded


SMALL = replace(LOCAL, lr=1e-9)


@pytest.mark.parametrize("method", [CFLGP(local=SMALL), IFCA(2, SMALL, send="gradient")], ids=repr)
def test_gradients_on_raw_inputs_are_no_divergence(method: Algorithm[Any]) -> None:
    net = Net(lambda: nn.Linear(6, 3))
    for _, record in run_of(method, scaled(INCOMES), net).rounds(2):
        assert not record.refused


@pytest.mark.parametrize("value", [1e9, float("nan")])
@pytest.mark.parametrize(
    "method", [FedAvg(LOCAL), IFCA(2, LOCAL), Sharing(FedAvg(LOCAL), kept=("3.*",))], ids=repr
)
def test_poisoned_statistics_enter_no_average(method: Algorithm[Any], value: float) -> None:
    layout = NET.layout

    def spoil(_: Request, row: Mapping[str, Tensor]) -> None:
        if "update" in row:
            row["update"][..., -len(layout.variances) :] = value

    honest = run_of(method, scaled((0.5,) * 4))
    run = replace(honest, engine=Lying(honest.clients, spoil))
    ((state, record),) = run.rounds(1)
    assert record.refused[LIAR]
    assert float(state.models[:, layout.variances].max()) < 100


def test_weights_that_explode_still_diverge() -> None:
    wild = replace(LOCAL, lr=1e9)
    with pytest.raises(DivergedError, match="training diverged for"):
        [*run_of(FedAvg(wild), scaled(INCOMES)).rounds(3)]
    net = Net(lambda: nn.Linear(6, 3))
    steps = IFCA(1, replace(LOCAL, lr=1e34), send="gradient")
    with pytest.raises(DivergedError, match="training diverged for"):
        [*run_of(steps, scaled(INCOMES), net).rounds(5)]
