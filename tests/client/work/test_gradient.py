"""The gradient of all training examples, of networks that mix the examples of a batch and others.

It is of the mean loss in training mode, over all of them at once, however many there are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import umbel
from tests.engines.modules import Build, normed
from tests.federations import blobs, each_its_own
from umbel.client.batches import SLICE
from umbel.client.work import Gradient, LocalTraining, TrainAndGradient
from umbel.data.federation import Federation
from umbel.engines import EngineSettings, Sequential, make_engine
from umbel.flow import Request
from umbel.preflight.examples import check_batches

WHOLE = LocalTraining(steps=1, batch_size="all")


class Centred(nn.Module):
    """Subtracts from each example the mean of its batch, and keeps no statistics."""

    def forward(self, x: Tensor) -> Tensor:
        return x - x.mean(0) if self.training else x


class Flat(nn.Module):
    """Drops every dimension of one value, that of a batch of one example, too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x).squeeze()
        return out


normalised = normed(lambda: nn.BatchNorm1d(8))
statistics_of_batches_alone = normed(lambda: nn.BatchNorm1d(8, track_running_stats=False))
centred = normed(Centred)


def sorted_by_class(size: int) -> Federation:
    """A client whose slices are not alike, and another of a few examples."""
    y = np.sort(np.arange(size) % 3)
    x = np.random.default_rng(0).normal(size=(size, 6)) + y[:, None]
    return Federation.from_arrays([(x, y), (x[:9], y[:9])], test_fraction=0.0, num_classes=3)


def at_once(net: umbel.Net, theta: Tensor, federation: Federation) -> Tensor:
    """The gradient of the first client's mean loss, by autograd, in one pass in training mode."""
    x, y = federation.train.of(0)
    module = net.module(theta).train()
    torch.autograd.backward(cross_entropy(module(x.to(net.dtype)), y))
    return torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])


@pytest.mark.parametrize("work", [Gradient(), TrainAndGradient(WHOLE)], ids=["alone", "beside"])
@pytest.mark.parametrize("build", [normalised, statistics_of_batches_alone, centred, Flat])
@pytest.mark.parametrize("size", [SLICE + 1, 2 * SLICE])
def test_it_is_of_one_batch_where_examples_are_mixed(build: Build, size: int, work: Any) -> None:
    net, federation = umbel.Net(lambda: build().double()), sorted_by_class(size)
    theta = net.new(0)
    request = Request(work, torch.tensor([0]), [0], each={"theta": each_its_own(theta[None])})
    expected = at_once(net, theta, federation)
    general = EngineSettings(name="sequential", kernel="general", device="cpu")
    for engine in (
        Sequential(net, federation),
        make_engine(net, federation),
        make_engine(net, federation, general),
    ):
        found = engine.send(request).columns["gradient"][0]
        torch.testing.assert_close(found[: len(expected)], expected)


@pytest.mark.parametrize(
    ("build", "whole"),
    [
        (normed(nn.Identity), False),
        (normed(lambda: nn.LayerNorm(8)), False),
        (normed(lambda: nn.Dropout(0.5)), False),
        (normed(lambda: nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(8))), True),
        (normalised, True),
        (centred, True),
    ],
)
def test_others_take_it_in_slices_which_need_less_memory(build: Build, whole: bool) -> None:
    net = umbel.Net(build)
    assert Sequential(net, sorted_by_class(SLICE + 1)).net.way.whole == whole
    assert Sequential(net, sorted_by_class(SLICE)).net.way.whole is None


@dataclass(frozen=True)
class OfGradients:
    """What a method of one's own may hold, that only asks for gradients."""

    gradient: Gradient = field(default_factory=Gradient)


def test_a_client_of_one_example_is_refused_where_there_must_be_two() -> None:
    with pytest.raises(umbel.UsageError, match="it has one example, and batch normalisation needs"):
        check_batches(umbel.Net(normalised), blobs((9, 1)), OfGradients())
    check_batches(umbel.Net(centred), blobs((9, 1)), OfGradients())


@pytest.mark.parametrize(
    "method",
    [
        umbel.IFCA(2, send="gradient", local=WHOLE),
        umbel.Sattler(send="gradient", local=WHOLE),
        umbel.CFLGP(2, send="gradient", local=WHOLE),
    ],
    ids=lambda method: type(method).__name__,
)
def test_gradients_move_no_running_statistics_as_the_methods_page_says(
    method: umbel.Algorithm[Any],
) -> None:
    net = umbel.Net(normalised)
    *_, (state, _) = umbel.Run(method, blobs((20, 20, 20)), net).rounds(2)
    for model in state.models:
        assert (net.layout.tensors(model)["1.running_mean"] == 0).all()
        assert (net.layout.tensors(model)["1.running_var"] == 1).all()
