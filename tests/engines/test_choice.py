"""The one rule by which clients are batched or not."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from tests.engines.modules import (
    Bounded,
    Drawing,
    LayerDrop,
)
from tests.federations import blobs, each_its_own
from umbel.checks import UsageError
from umbel.client.net import Net
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.engines import EngineSettings, Sequential, Vectorised, make_engine
from umbel.flow import Request
from umbel.networks import CNN, MLP, CharTransformer

CPU = EngineSettings(device="cpu")


class Centred(nn.Module):
    """Mixes the examples of a batch, as contrastive losses do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x - x.mean(0))
        return out


class Branching(nn.Module):
    """Takes a decision on values."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.layer(x)
        return out if out.sum() > 0 else -out


class _Recurrent(nn.Module):
    """Names each symbol of a sequence (B, T)."""

    def __init__(self, kind: Callable[..., nn.Module]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(3, 4)
        self.recurrent = kind(4, 3, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.recurrent(self.embedding(x))[0]
        return out.movedim(-1, 1)


def norm() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4), nn.Linear(4, 3))


def dropout() -> nn.Module:
    return nn.Sequential(nn.Linear(6, 4), nn.Dropout(0.5), nn.Linear(4, 3))


def test_dense_networks_are_batched() -> None:
    net = Net(lambda: MLP().build((6,), 3))
    assert isinstance(make_engine(net, blobs(), CPU), Vectorised)


def test_convolutions_on_a_cpu_run_one_client_after_another_unless_asked() -> None:
    net, federation = Net(lambda: CNN((2,), 3, 4).build((1, 4, 4), 3)), blobs(shape=(1, 4, 4))
    assert isinstance(make_engine(net, federation, CPU), Sequential)
    forced = EngineSettings(name="vectorised", device="cpu")
    assert isinstance(make_engine(net, federation, forced), Vectorised)


def test_large_models_on_a_cpu_run_one_client_after_another_unless_they_are_dense() -> None:
    def large() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 400), nn.LayerNorm(400), nn.Linear(400, 400))

    assert isinstance(make_engine(Net(large), blobs(), CPU), Sequential)
    forced = EngineSettings(name="vectorised", device="cpu")
    assert isinstance(make_engine(Net(large), blobs(), forced), Vectorised)
    dense = Net(lambda: MLP((400, 400)).build((6,), 3))
    assert isinstance(make_engine(dense, blobs(), CPU), Vectorised)


def test_a_single_client_has_the_dense_kernel_too() -> None:
    engine = make_engine(Net(lambda: MLP().build((6,), 3)), blobs([9]), CPU)
    assert isinstance(engine, Sequential)
    assert engine.net.way.kernel == "dense"


def test_attention_is_batched_and_recurrent_layers_run_one_client_after_another(
    caplog: pytest.LogCaptureFixture,
) -> None:
    x = torch.randint(0, 3, (12, 4), generator=torch.Generator().manual_seed(0))
    shards = [(x, x.roll(1, 1))] * 2
    federation = Federation.from_arrays(shards, num_classes=3)
    transformer = Net(lambda: CharTransformer(8, 2, 1, 8).build((4,), 3))
    assert isinstance(make_engine(transformer, federation, CPU), Vectorised)
    for kind in (nn.LSTM, nn.GRU, nn.RNN):
        lstm = Net(lambda kind=kind: _Recurrent(kind))  # type: ignore[misc]
        caplog.clear()
        with caplog.at_level(logging.INFO):
            assert isinstance(make_engine(lstm, federation, CPU), Sequential)
        # Its outputs are the layer's own, between -1 and 1: a warning of the network itself.
        said = [message for message in caplog.messages if "logits" not in message]
        assert ["recurrent layers can't be batched over clients" in each for each in said] == [True]
        # Why not is found out where it is asked for all the same.
        with pytest.raises(UsageError, match="'vectorised' is not possible: vmap refuses"):
            make_engine(lstm, federation, EngineSettings(name="vectorised", device="cpu"))


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (norm, "batch normalisation mixes"),
        (Centred, "the module mixes the examples"),
        (Bounded, "the module mixes the examples"),
        (LayerDrop, "the module draws from Python's or NumPy's generator"),
        (Branching, "vmap refuses the module"),
        (dropout, "vmap refuses the module"),
    ],
)
def test_what_can_not_be_batched_runs_sequentially_and_says_why(
    build: type[nn.Module], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    net = Net(build)
    with caplog.at_level(logging.INFO):
        engine = make_engine(net, blobs(), CPU)
    assert isinstance(engine, Sequential)
    assert [reason in record.getMessage() for record in caplog.records] == [True]
    with pytest.raises(UsageError, match=rf"engine\.name: 'vectorised' is not possible: {reason}"):
        make_engine(net, blobs(), EngineSettings(name="vectorised", device="cpu"))


def test_dropout_is_a_function_of_the_clients_seed() -> None:
    net, federation = Net(dropout), blobs()
    theta = each_its_own(net.new(0).repeat(2, 1))

    def updates(seeds: list[int]) -> torch.Tensor:
        request = Request(LocalTraining(), torch.tensor([1, 2]), seeds, each={"theta": theta})
        return Sequential(net, federation).send(request).columns["update"]

    state = torch.get_rng_state()
    assert torch.equal(updates([5, 6]), updates([5, 6]))
    assert not torch.equal(updates([5, 6])[0], updates([7, 6])[0])
    assert torch.equal(updates([5, 6])[1], updates([7, 6])[1])
    assert torch.equal(torch.get_rng_state(), state)


def test_a_device_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match="device: 'gpu' is not a device"):
        EngineSettings(device="gpu")
    for device in ("cuda:99", "vulkan", "hpu", "meta"):
        said = rf"engine\.device: '{device}' is not available here: .{{9,120}}$"
        with pytest.raises(UsageError, match=said):
            make_engine(Net(lambda: MLP().build((6,), 3)), blobs(), EngineSettings(device=device))
    for much in (0, 1e308):
        with pytest.raises(UsageError, match=r"memory_mb: .* is not more than 0, and below 1e12"):
            EngineSettings(memory_mb=much)


def test_a_probe_leaves_the_global_generators_as_they_were() -> None:
    def states() -> tuple[object, ...]:
        arrays = str(np.random.get_state())  # noqa: NPY002
        return random.getstate(), arrays, torch.get_rng_state().tolist()

    before = states()
    make_engine(Net(Drawing), blobs(), CPU)
    assert states() == before
