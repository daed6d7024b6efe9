"""Training one client after another computes what PyTorch does with the module itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from tests.engines.modules import Build
from tests.engines.test_equality import assert_same, request
from tests.federations import blobs
from umbel.client.batches import Batch
from umbel.client.kernel_choice import Way
from umbel.client.kernels.in_place import InPlace
from umbel.client.net import Net
from umbel.client.work import Evaluation, LocalTraining
from umbel.engines import Sequential
from umbel.preflight.properties import with_channels_last


class Filtered(nn.Module):
    """Films (B, T, 1, 4, 4): a filter over time, and then images."""

    def __init__(self) -> None:
        super().__init__()
        self.filter = nn.Conv3d(1, 2, (3, 1, 1), padding=(1, 0, 0))
        self.images, self.head = nn.Conv2d(2, 4, 3, padding=1), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        image = self.filter(x.movedim(1, 2)).mean(2)
        out: Tensor = self.head(self.images(image).relu().mean((2, 3)))
        return out


class Placed(nn.Module):
    """Films again, with an embedding (1, T, 1, 4, 4) of places, and a table of such a shape."""

    def __init__(self) -> None:
        super().__init__()
        self.table: Tensor
        self.places = nn.Parameter(torch.randn(1, 3, 1, 4, 4))
        self.register_buffer("table", torch.randn(1, 3, 1, 4, 4))
        self.images, self.head = nn.Conv2d(1, 4, 3, padding=1), nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        images = (x + self.places + self.table).flatten(0, 1)
        inner = self.images(images).relu().mean((2, 3)).view(len(x), 3, -1)
        out: Tensor = self.head(inner.mean(1))
        return out


class Reading(nn.Module):
    """Reads a buffer that another layer writes."""

    def __init__(self, scale: Tensor) -> None:
        super().__init__()
        self.scale: Tensor
        self.register_buffer("scale", scale, persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


class Writing(nn.Module):
    """Writes a buffer that is not saved, for layers further on; images (B, 1, 4, 4)."""

    def __init__(self) -> None:
        super().__init__()
        self.scale: Tensor
        self.register_buffer("scale", torch.ones(1, 2, 4, 4), persistent=False)
        self.first, self.read = nn.Conv2d(1, 2, 3, padding=1), Reading(self.scale)
        self.head = nn.Linear(32, 3)

    def forward(self, x: Tensor) -> Tensor:
        self.scale.copy_(x.detach().mean() + 2)
        out: Tensor = self.head(self.read(self.first(x)).flatten(1))
        return out


@pytest.mark.parametrize("build", [Filtered, Placed])
def test_networks_with_convolutions_may_have_tensors_of_five_dimensions(build: Build) -> None:
    federation, net = blobs(shape=(3, 1, 4, 4)), Net(lambda: build().double())
    fast = with_channels_last(net.using("in-place"), federation)
    assert fast.way.channels_last
    for work in (LocalTraining(lr=0.1, batch_size=4), Evaluation()):
        asked = request(work, net, [0, 1, 2])
        expected = Sequential(net, federation).send(asked)
        assert_same(Sequential(fast, federation).send(asked), expected, 1e-9)


@pytest.mark.parametrize("channels_last", [False, True])
def test_a_buffer_that_layers_share_is_written_and_read_by_all_of_them(channels_last: bool) -> None:
    net = Net(Writing)  # double() would part them
    fast = net.computing(Way(kernel="in-place", channels_last=channels_last))
    x = torch.randn(5, 1, 4, 4, generator=torch.manual_seed(0))
    batch, theta = Batch(x, torch.tensor([0, 1, 2, 0, 1])), net.new(0)
    plain = net.module(theta).train()
    loss = nn.functional.cross_entropy(plain(batch.x), batch.y)
    expected = torch.autograd.grad(loss, list(plain.parameters()))
    found, _ = fast.gradient(theta, batch)
    torch.testing.assert_close(found, torch.cat([slope.flatten() for slope in expected]))


def test_a_constant_keeps_its_order_in_memory_where_other_modules_use_it() -> None:
    class Masked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mask: Tensor
            self.register_buffer("mask", torch.rand(1, 2, 4, 4))
            self.images, self.again = nn.Conv2d(1, 2, 3, padding=1), Reading(self.mask)

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.again(self.images(x)).mean((2, 3))
            return out

    net = Net(Masked)
    given = dict(net.modules.training.named_buffers())["mask"]
    kernel = net.computing(Way(kernel="in-place", channels_last=True)).kernel
    assert isinstance(kernel, InPlace)
    own = dict(kernel.module.named_buffers(remove_duplicate=False))
    assert given.is_contiguous()
    assert own["mask"].stride(1) == 1
    assert own["again.scale"] is own["mask"]
