"""Numbers whose scale is that of the data: what is honest there passes, and a lie does not."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import umbel
from tests.engines.test_lies import LIAR, Lying
from tests.federations import blobs
from umbel import FedAvg, Federation, Limits, LocalTraining, Net, Personal, Run
from umbel.algorithms import CFLGP, IFCA, LocalOnly, Oracle, PFedMe, Sharing
from umbel.algorithms.base import Algorithm
from umbel.checks import DivergedError
from umbel.engines.replies.guarded import Guarded
from umbel.flow import Request, Rows

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


def test_personal_versions_on_raw_inputs_are_kept_and_lost_ones_are_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    federation = scaled(ONE_APART).with_validation(0.3)
    personal = Personal(epochs=(3,), lr=0.05)
    wide = Limits(max_value=1e12)
    (_, one), (_, other) = (
        [*run_of(FedAvg(LOCAL), federation, personal=personal, limits=limits).rounds(1)][-1]
        for limits in (Limits(), wide)
    )
    assert one.accuracy == other.accuracy
    assert "fine-tuning diverged" not in caplog.text
    caplog.set_level(logging.WARNING)
    wild = Personal(epochs=(3,), lr=1e9)
    [*run_of(FedAvg(LOCAL), federation, personal=wild).rounds(1)]
    assert "personal: fine-tuning diverged for 4 of 4 clients" in caplog.text


@pytest.mark.parametrize("value", [1e30, 1e9, float("inf"), float("nan")])
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


def test_poisoned_statistics_of_one_kind_are_measured_by_the_same_kind_of_others() -> None:
    layout = NET.layout  # means come first, of incomes as large as these

    def spoil(_: Request, row: Mapping[str, Tensor]) -> None:
        if "update" in row:
            row["update"][layout.num_weights : layout.num_weights + 6] = 1e13

    honest = run_of(FedAvg(LOCAL), scaled(INCOMES))
    ((_, record),) = replace(honest, engine=Lying(honest.clients, spoil)).rounds(1)
    assert record.refused[LIAR].startswith("running statistics: 1e+13, where most clients send")


def test_in_blocks_the_same_clients_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    layout = NET.layout

    def spoil(_: Request, row: Mapping[str, Tensor]) -> None:
        row["update"][-1] = 1e20

    monkeypatch.setattr("umbel.engines.replies.guarded.BLOCK_BYTES", 2 * 8 * layout.num_values)
    engine = run_of(FedAvg(LOCAL), scaled((1.0,) * 6)).clients
    theta = Rows(NET.new(0)[None], torch.zeros(6, dtype=torch.long))
    reduction = umbel.Averaging().reduction(1, torch.zeros(6, dtype=torch.long))
    asked = Request(
        LOCAL, torch.arange(6), list(range(6)), {}, {"theta": theta}, reduction=reduction
    )
    guard = Guarded(Lying(engine, spoil), Limits(), layout=layout)
    replies = guard.send(asked)
    assert replies.clients.tolist() == [0, 2, 3, 4, 5]
    assert list(guard.take()[1]) == [LIAR]
    assert replies.sums is not None
    assert float(replies.sums.values.abs().max()) < 1e6


def test_with_norms_bounded_a_client_alone_in_its_average_keeps_its_statistics() -> None:
    limits = Limits(max_norm_ratio=4.0)
    for _, record in run_of(Oracle(LOCAL), scaled(ONE_APART), limits=limits).rounds(2):
        assert not any("statistics" in said for said in record.bounded.values())
    (_, record) = next(run_of(FedAvg(LOCAL), scaled(ONE_APART), limits=limits).rounds(1))
    assert "update of statistics" in record.bounded[3]


def test_weights_that_explode_still_diverge() -> None:
    wild = replace(LOCAL, lr=1e9)
    with pytest.raises(DivergedError, match="training diverged for"):
        [*run_of(FedAvg(wild), scaled(INCOMES)).rounds(3)]
    net = Net(lambda: nn.Linear(6, 3))
    steps = IFCA(1, replace(LOCAL, lr=1e34), send="gradient")
    with pytest.raises(DivergedError, match="training diverged for"):
        [*run_of(steps, scaled(INCOMES), net).rounds(5)]
