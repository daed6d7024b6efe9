"""What PyTorch builds runs, batched where it can be, and one client after another where not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.parametrizations import weight_norm
from torch.nn.utils.rnn import pack_padded_sequence

import umbel
from tests.engines.fitted import LABELS, clients, numbers
from tests.engines.modules import Recurrent, Transformer, spread
from tests.federations import blobs
from umbel.engines import Sequential, Vectorised, make_engine
from umbel.flow import Request, Rows
from umbel.networks import MLP
from umbel.preflight.sample import sample


class Packed(nn.Module):
    """An LSTM over sequences of unequal length, as PyTorch's own tutorials do it."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.head = nn.LSTM(1, 4, batch_first=True), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        lengths = (x != 0).sum(1).clamp(min=1).cpu()
        packed = pack_padded_sequence(x[..., None], lengths, batch_first=True, enforce_sorted=False)
        _, (last, _) = self.lstm(packed)
        out: Tensor = self.head(last[-1])
        return out


class Straight(torch.autograd.Function):
    """Rounds, and lets gradients through: written without a rule for `torch.func`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # noqa: ARG004
        return x.round()

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> Tensor:  # noqa: ARG004
        return slope


class Rounded(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = Straight.apply(self.layer(x))  # type: ignore[no-untyped-call]
        return out


class Refusing(nn.Linear):
    """Does not let itself be batched, and does not say why."""

    def forward(self, x: Tensor) -> Tensor:
        if torch._C._functorch.is_batchedtensor(x):
            raise AssertionError  # to an assert, pytest would add words
        return super().forward(x)


class Tracked(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.head = nn.InstanceNorm1d(2, track_running_stats=True), nn.Linear(10, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.norm(x).flatten(1))
        return out


class Centred(nn.Module):
    """Takes a running mean off its inputs in evaluation only."""

    def __init__(self) -> None:
        super().__init__()
        self.running: Tensor
        self.register_buffer("running", torch.zeros(6))
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.training:
            self.running.mul_(0.9).add_(x.mean(0), alpha=0.1)
        out: Tensor = self.layer(x if self.training else x - self.running)
        return out


@pytest.mark.parametrize(
    ("build", "x"),
    [
        (Packed, np.abs(numbers(12, 6))),
        (Rounded, numbers(12, 6)),
        (lambda: Refusing(6, 3), numbers(12, 6)),
        (Tracked, numbers(12, 2, 5)),
        (
            lambda: nn.Sequential(nn.Embedding(9, 3, sparse=True), nn.Flatten(), nn.Linear(9, 3)),
            np.arange(36).reshape(12, 3) % 9,
        ),
    ],
    ids=[
        "packed sequences",
        "own autograd function",
        "silent error",
        "instance norm",
        "sparse embedding",
    ],
)
@pytest.mark.parametrize(
    "method",
    [umbel.FedAvg(), umbel.IFCA(), umbel.CFLGP(), umbel.PFedMe(), umbel.Joint()],
    ids=lambda method: type(method).__name__,
)
def test_what_only_plain_pytorch_can_do_runs_one_client_after_another(
    build: Callable[[], nn.Module], x: np.ndarray, method: umbel.Algorithm[Any]
) -> None:
    federation, net = clients(x, LABELS), umbel.Net(build)
    *_, (state, record) = umbel.Run(method, federation, net).rounds(2)
    assert state.models.isfinite().all()
    assert record.refused == {}


@pytest.mark.parametrize("index", [[0, 0, 0], [0, 1, 2]], ids=["one model", "own models"])
def test_padding_does_not_move_a_statistic_that_only_evaluation_reads(index: list[int]) -> None:
    federation, net = blobs((5, 7, 12)), umbel.Net(Centred, moving=["running"])
    theta = Rows(torch.stack([net.new(seed) for seed in range(3)]), torch.tensor(index))
    work = umbel.LocalTraining(lr=0.1, epochs=1, batch_size=4)
    request = Request(work, torch.arange(3), [1, 2, 3], each={"theta": theta})
    expected = Sequential(net, federation).send(request).columns["update"]
    found = make_engine(net, federation, umbel.EngineSettings(device="cpu")).send(request)
    torch.testing.assert_close(found.columns["update"], expected)


@pytest.mark.parametrize("num_inputs", [5, 6, 7, 10, 14, 30, 50])
def test_small_networks_of_any_width_are_batched(num_inputs: int) -> None:
    federation = clients(numbers(12, num_inputs), LABELS)
    for hidden in [(), (1,), (5,), (7,), (16,), (33,), (8, 8), (13, 3), (64, 10)]:
        net = umbel.Net(lambda hidden=hidden: MLP(hidden).build((num_inputs,), 3))  # type: ignore[misc]
        assert isinstance(make_engine(net, federation), Vectorised)
        activated = umbel.Net(  # no chain of ReLUs, so that it is tried
            lambda hidden=hidden: nn.Sequential(  # type: ignore[misc]
                MLP(hidden).build((num_inputs,), 3), nn.Tanh()
            )
        )
        assert isinstance(make_engine(activated, federation), Vectorised)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(
    "method",
    [
        umbel.FedAvg(),
        umbel.IFCA(),
        umbel.LCFL(),
        umbel.CFLGP(),
        umbel.Joint(),
        umbel.FLACC(),
        umbel.FedEM(),
        umbel.PFedMe(),
        umbel.PerFedAvg(),
    ],
    ids=lambda method: type(method).__name__,
)
def test_recurrent_networks_run_under_every_method(
    kind: Callable[..., nn.Module], method: umbel.Algorithm[Any], caplog: pytest.LogCaptureFixture
) -> None:
    federation = clients(numbers(12, 4, 2), LABELS)
    net = umbel.Net(lambda: Recurrent(kind))
    with caplog.at_level(logging.INFO):
        *_, (state, record) = umbel.Run(method, federation, net).rounds(2)
    assert state.models.isfinite().all()
    assert record.loss is not None
    said = [entry for entry in caplog.records if "one after another" in entry.getMessage()]
    assert len(said) == 1


def normalised(*sizes: int, batch_first: bool) -> nn.Module:
    layer = nn.LSTM(*sizes, batch_first=batch_first)
    weight_norm(layer, "weight_hh_l0")
    return layer.float()


def test_recurrent_networks_with_normalised_weights_are_copied_even_after_passes() -> None:
    federation = clients(numbers(12, 4, 2), LABELS)
    net = umbel.Net(lambda: Recurrent(normalised))
    settings = umbel.EngineSettings(kernel="general")
    for _ in range(2):
        run = umbel.Run(umbel.FedAvg(), federation, net, engine=settings)
        *_, (state, _) = run.rounds(2)
    batch = sample(net, federation)
    expected = net.module(state.models[0])(batch.x)
    torch.testing.assert_close(net.outputs(state.models[0], batch.x), expected)
    assert (state.models[0] != net.new(0)).all()


def test_a_layer_in_data_parallel_runs_where_there_are_no_gpus() -> None:
    federation = clients(numbers(12, 6), LABELS)
    net = umbel.Net(lambda: nn.Sequential(spread(nn.Linear(6, 4), []), nn.Tanh(), nn.Linear(4, 3)))
    *_, (state, _) = umbel.Run(umbel.FedAvg(), federation, net).rounds(2)
    assert (state.models[0] != net.new(0)).all()


def test_a_causal_mask_does_not_poison_the_updates() -> None:
    tokens = np.arange(72).reshape(12, 6) % 7
    net = umbel.Net(Transformer)
    assert not any("mask" in entry.name for entry in net.layout.rest)
    *_, (state, record) = umbel.Run(umbel.FLACC(), clients(tokens, tokens), net).rounds(2)
    assert state.models.isfinite().all()
    assert record.refused == {}
