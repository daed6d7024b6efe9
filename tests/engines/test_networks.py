"""Every network by name trains under both engines, with equal results where it can be batched."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from tests.federations import blobs
from umbel.engines import Sequential, Vectorised
from umbel.engines.choice import why_not_batchable
from umbel.flow import Request, Rows
from umbel.models import MODELS
from umbel.net import Net
from umbel.work import LocalTraining

SHAPES = {"cnn-1d": (1, 24), "lenet": (1, 16, 16), "resnet18": (1, 2, 2)}


@pytest.mark.parametrize("name", MODELS)
def test_engines_agree_on_every_network(name: str) -> None:
    shape = SHAPES.get(name, (1, 8, 8))
    federation = blobs((5, 7), shape=shape)

    def build() -> nn.Module:
        return MODELS[name]().build(shape, 3).double()

    net = Net(build)
    assert why_not_batchable(net, federation) is None
    theta = Rows(net.new(0)[None], torch.tensor([0, 0]))
    work = LocalTraining(batch_size=4, lr=0.05, steps=3)
    asked = Request(work, torch.tensor([0, 1]), [3, 4], {}, {"theta": theta})
    expected = Sequential(net, federation).send(asked).columns["update"]
    assert expected.isfinite().all()
    assert expected.abs().max() > 0
    for engine in (Vectorised(net, federation), Sequential(net.using("in-place"), federation)):
        found = engine.send(asked).columns["update"]
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-10)
