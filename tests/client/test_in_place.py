"""Training one client after another computes what PyTorch does with the module itself."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from umbel.client.batches import Batch
from umbel.client.kernel_choice import Way
from umbel.client.net import Net


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
