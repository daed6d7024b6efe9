"""Mini-batches in parts come to what they come to as a whole."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import umbel
from tests.engines.modules import Bounded, Build, Tagger, normed
from tests.federations import blobs
from tests.frozen import Trunk
from umbel.checks import UsageError
from umbel.client.batches import IGNORED, Batch
from umbel.client.kernel_choice import KernelName
from umbel.client.net import Net
from umbel.engines import EngineSettings, Sequential, make_engine
from umbel.engines.processes.workers import Workers

LOCAL = umbel.LocalTraining(lr=0.1, epochs=2, batch_size=8)


def trunk() -> Net:
    return Net(lambda: Trunk().double(), trained=["head.*", "trunk.2.*"])


@pytest.mark.parametrize("kernel", ["general", "in-place"])
@pytest.mark.parametrize("size", [1, 3, 7, 100])
def test_gradients_are_those_of_the_whole_batch(kernel: KernelName, size: int) -> None:
    net = trunk().using(kernel)
    x, y = (
        torch.randn(7, 6, generator=torch.manual_seed(0), dtype=torch.double),
        torch.arange(7) % 3,
    )
    factors = torch.linspace(0, 2, 7, dtype=torch.double)
    keep = torch.tensor([True] * 5 + [False] * 2)
    theta, parts = net.new(0), net.in_parts(size)
    for batch in (Batch(x, y), Batch(x, y, keep)):
        for weights in (None, factors):
            whole, _ = net.gradient(theta, batch, weights)
            found, _ = parts.gradient(theta, batch, weights)
            torch.testing.assert_close(found, whole)
        torch.testing.assert_close(
            parts.gradient_and_loss(theta, batch)[1], net.gradient_and_loss(theta, batch)[1]
        )
    torch.testing.assert_close(parts.outputs(theta, x), net.outputs(theta, x))


def test_labels_that_do_not_count_are_in_no_mean() -> None:
    generator = torch.manual_seed(0)
    x, y = (
        torch.randint(7, (5, 6), generator=generator),
        torch.randint(3, (5, 6), generator=generator),
    )
    y[0], y[3, 2:] = IGNORED, IGNORED  # the first part may be nothing but padding
    net = Net(lambda: Tagger().double())
    whole, _ = net.gradient(net.new(0), Batch(x, y))
    found, _ = net.in_parts(1).gradient(net.new(0), Batch(x, y))
    torch.testing.assert_close(found, whole)


@pytest.mark.parametrize("name", ["sequential", "vectorised"])
def test_runs_come_to_the_same(name: Any) -> None:
    states = []
    for size in (None, 3):
        settings = EngineSettings(name, device="cpu", micro_batch_size=size)
        run = umbel.Run(umbel.FedAvg(local=LOCAL), blobs(), trunk(), engine=settings)
        states.append([state.models for state, _ in run.rounds(3)][-1])
    torch.testing.assert_close(states[0], states[1])


def test_no_more_than_so_many_examples_go_through_at_once() -> None:
    seen: list[int] = []

    class Noting(Trunk):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(len(x))
            return super().forward(x)

    settings = EngineSettings("sequential", device="cpu", micro_batch_size=3)
    run = umbel.Run(umbel.FedAvg(local=LOCAL), blobs(), Net(Noting), engine=settings)
    list(run.rounds(1))
    assert max(seen) == 3


def test_statistics_of_whole_batches_refuse_parts() -> None:
    net = Net(normed(lambda: nn.BatchNorm1d(8)))
    with pytest.raises(UsageError, match=r"micro_batch_size: 2 is not allowed: \['1\.running_mean"):
        net.in_parts(2)
    with pytest.raises(UsageError, match="micro_batch_size: 0 is not 1 or more"):
        EngineSettings(micro_batch_size=0)


@pytest.mark.parametrize(
    "build",
    [
        Bounded,
        normed(lambda: nn.BatchNorm1d(8)),
        normed(lambda: nn.BatchNorm1d(8, track_running_stats=False)),
    ],
)
def test_what_mixes_the_examples_of_a_mini_batch_refuses_parts(build: Build) -> None:
    settings = EngineSettings(device="cpu", micro_batch_size=2)
    with pytest.raises(UsageError, match="2 is not allowed: the network mixes the examples"):
        make_engine(Net(build), blobs(), settings)
    engine = make_engine(Net(build), blobs(), EngineSettings(device="cpu", memory_mb=0.001))
    within = engine.engine if isinstance(engine, Workers) else engine
    assert isinstance(within, Sequential)
    assert within.net.way.micro_batch is None
