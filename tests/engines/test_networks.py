"""Every network by name trains under both engines, with equal results where it can be batched."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.federations import blobs
from umbel.client.net import Net
from umbel.client.work import LocalTraining
from umbel.data.scenarios import ChannelState
from umbel.data.sources import Sources
from umbel.engines import Sequential, Vectorised
from umbel.engines.choice import why_not_batchable
from umbel.flow import Engine, Request, Rows
from umbel.networks import MODELS, CSIAutoencoder
from umbel.networks.autoencoder import Norm

SHAPES = {"cnn-1d": (1, 24), "lenet": (1, 16, 16), "resnet18": (1, 2, 2)}

OF_IMAGES = [name for name in MODELS if name != "csi-autoencoder"]


def updates(net: Net, engines: Sequence[Engine]) -> list[Tensor]:
    """What clients send after training, by each engine."""
    theta = Rows(net.new(0)[None], torch.tensor([0, 0]))
    work = LocalTraining(batch_size=4, lr=0.05, steps=2)
    asked = Request(work, torch.tensor([0, 1]), [3, 4], {}, {"theta": theta})
    return [engine.send(asked).columns["update"] for engine in engines]


@pytest.mark.parametrize("name", OF_IMAGES)
def test_engines_agree_on_every_network(name: str) -> None:
    shape = SHAPES.get(name, (1, 8, 8))
    federation = blobs((5, 7), shape=shape)
    net = Net(lambda: MODELS[name]().build(shape, 3).double())
    assert why_not_batchable(net, federation) is None
    in_place = net.using("in-place")
    engines = [Sequential(net, federation), Sequential(in_place, federation)]
    one_by_one, *others = updates(net, [*engines, Vectorised(net, federation)])
    assert one_by_one.isfinite().all()
    assert one_by_one.abs().max() > 0
    for found in others:
        torch.testing.assert_close(found, one_by_one, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("norm", ["batch", "group"])
def test_engines_agree_on_the_autoencoder_whose_batch_norm_can_not_be_batched(norm: Norm) -> None:
    recipe = ChannelState(clients=2, examples=8, test_fraction=0.25)
    federation = recipe.build(0, Sources(None, Path()))

    def build() -> nn.Module:
        return CSIAutoencoder(code=4, norm=norm).build((2, 32, 32), 2048).double()

    net = Net(build, federation.objective)
    engines: list[Engine] = [Sequential(net.using("in-place"), federation)]
    if norm == "group":
        assert why_not_batchable(net, federation) is None
        engines.append(Vectorised(net, federation))
    else:
        assert "batch normalisation" in str(why_not_batchable(net, federation))
    expected, *others = updates(net, [Sequential(net, federation), *engines])
    assert expected.isfinite().all()
    assert expected.abs().max() > 0
    for found in others:
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
