"""The dense kernel in bfloat16: PyTorch takes such products anywhere, if slowly."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.engines.test_equality import request
from tests.federations import blobs, mlp
from umbel.client.batches import Batch
from umbel.client.kernels import dense
from umbel.client.net import Net
from umbel.client.optimizers import SGD, Adam
from umbel.client.work import Gradient, LocalTraining, MeanLoss, Work
from umbel.engines import Sequential, Vectorised
from umbel.engines.processes.workers import Workers, can_fork

EPS = 2.0**-8
"""What rounding to bfloat16 changes a number by, in units of it, at most."""

WORKS: list[Work] = [
    MeanLoss(),
    Gradient(),
    LocalTraining(batch_size=4, epochs=2),
    LocalTraining(batch_size=4, epochs=2, proximal=0.5, optimizer=SGD(momentum=0.9)),
    LocalTraining(batch_size=4, epochs=2, lr=0.01, optimizer=Adam()),
    LocalTraining(batch_size=4, steps=1),
]


@pytest.fixture
def everything_in_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take every product of a single pass in bfloat16, whether that is faster or not."""
    monkeypatch.setattr(dense, "is_faster_in_half", lambda *_: True)


@pytest.mark.usefixtures("everything_in_half")
def test_outputs_are_products_of_rounded_factors() -> None:
    net = Net(lambda: nn.Linear(40, 3)).using("dense", "bf16")
    theta, x = net.new(0), torch.randn(5, 40, generator=torch.manual_seed(0))
    module = net.module(theta)
    assert isinstance(module, nn.Linear)
    rounded = [values.detach().bfloat16().double() for values in (x, module.weight)]
    exact = rounded[0] @ rounded[1].T
    found = net.outputs(theta, x)
    assert found.dtype == torch.float32
    apart = (found - module.bias.detach()).double() - exact
    assert float((apart.abs() / exact.abs()).max()) < EPS


@pytest.mark.usefixtures("everything_in_half")
@pytest.mark.parametrize("work", WORKS, ids=str)
def test_results_are_those_of_full_precision_but_for_rounding(work: Work) -> None:
    net, federation = mlp(), blobs()
    asked = request(work, net, [0, 1, 2, 3, 5])
    exact = Sequential(net, federation).send(asked).columns
    fast = net.using("dense", "bf16")
    for engine in (Vectorised(fast, federation), Sequential(fast, federation)):
        for name, column in engine.send(asked).columns.items():
            assert column.dtype == exact[name].dtype
            one, other = (rows.double().reshape(len(rows), -1) for rows in (column, exact[name]))
            apart = (one - other).norm(dim=1) / other.norm(dim=1)
            assert float(apart.median()) < 10 * EPS, name


def test_the_rule_takes_large_products() -> None:
    net = Net(lambda: nn.Linear(784, 200))
    batch = Batch(torch.rand(200, 784), torch.arange(200))
    theta = net.new(0)
    one, other = (
        net.using("dense", precision).outputs(theta, batch.x) for precision in ("full", "bf16")
    )
    assert 0 < float((one - other).norm() / one.norm()) < EPS


@pytest.mark.skipif(not can_fork(), reason="this system does not fork processes")
@pytest.mark.usefixtures("everything_in_half")
@pytest.mark.parametrize("work", [MeanLoss(), LocalTraining(batch_size=4, epochs=2)], ids=str)
def test_replies_do_not_depend_on_the_number_of_workers(work: Work) -> None:
    net = mlp().using("dense", "bf16")
    engine = Vectorised(net, blobs(), memory_mb=1e-6)
    asked = request(work, net, [0, 1, 2, 3, 5])
    expected = engine.send(asked).columns
    for count in (1, 3):
        for name, column in Workers(engine, count).send(asked).columns.items():
            assert torch.equal(column, expected[name])
