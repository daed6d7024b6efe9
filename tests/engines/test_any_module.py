"""What PyTorch builds runs, batched where it can be, and one client after another where not."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence

import umbel
from tests.engines.modules import Recurrent, Transformer
from tests.preflight.fitted import LABELS, clients, numbers
from umbel.engines import Vectorised, make_engine
from umbel.networks import MLP


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


@pytest.mark.parametrize(
    ("build", "x"),
    [
        (Packed, np.abs(numbers(12, 6))),
        (Rounded, numbers(12, 6)),
        (
            lambda: nn.Sequential(nn.Embedding(9, 3, sparse=True), nn.Flatten(), nn.Linear(9, 3)),
            np.arange(36).reshape(12, 3) % 9,
        ),
    ],
    ids=[
        "packed sequences",
        "own autograd function",
        "sparse embedding",
    ],
)
@pytest.mark.parametrize(
    "method",
    [umbel.FedAvg(), umbel.CFLGP()],
    ids=lambda method: type(method).__name__,
)
def test_what_only_plain_pytorch_can_do_runs_one_client_after_another(
    build: Callable[[], nn.Module], x: np.ndarray, method: umbel.Algorithm[Any]
) -> None:
    federation, net = clients(x, LABELS), umbel.Net(build)
    *_, (state, record) = umbel.Run(method, federation, net).rounds(2)
    assert state.models.isfinite().all()
    assert record.refused == {}


def test_small_networks_of_any_width_are_batched() -> None:
    num_inputs = 7
    federation = clients(numbers(12, num_inputs), LABELS)
    for hidden in [(), (1,), (13, 3), (64, 10)]:
        net = umbel.Net(lambda hidden=hidden: MLP(hidden).build((num_inputs,), 3))  # type: ignore[misc]
        assert isinstance(make_engine(net, federation), Vectorised)
        activated = umbel.Net(  # no chain of ReLUs, so that it is tried
            lambda hidden=hidden: nn.Sequential(  # type: ignore[misc]
                MLP(hidden).build((num_inputs,), 3), nn.Tanh()
            )
        )
        assert isinstance(make_engine(activated, federation), Vectorised)


@pytest.mark.parametrize(
    "method",
    [
        umbel.FedAvg(),
        umbel.IFCA(),
        umbel.CFLGP(),
        umbel.FedEM(),
        umbel.PerFedAvg(),
    ],
    ids=lambda method: type(method).__name__,
)
def test_recurrent_networks_run_under_every_method(
    method: umbel.Algorithm[Any], caplog: pytest.LogCaptureFixture
) -> None:
    federation = clients(numbers(12, 4, 2), LABELS)
    net = umbel.Net(lambda: Recurrent(nn.LSTM))
    with caplog.at_level(logging.INFO):
        *_, (state, record) = umbel.Run(method, federation, net).rounds(2)
    assert state.models.isfinite().all()
    assert record.loss is not None
    said = [entry for entry in caplog.records if "one after another" in entry.getMessage()]
    assert len(said) == 1


def test_a_causal_mask_does_not_poison_the_updates() -> None:
    tokens = np.arange(72).reshape(12, 6) % 7
    net = umbel.Net(Transformer)
    assert not any("mask" in entry.name for entry in net.layout.rest)
    *_, (state, record) = umbel.Run(umbel.FLACC(), clients(tokens, tokens), net).rounds(2)
    assert state.models.isfinite().all()
    assert record.refused == {}
