"""Networks whose outputs say nothing of it, and whose gradients mix the examples of a batch."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import umbel
from tests.engines.modules import Build, Transformer, convolutions, normed
from tests.federations import blobs
from umbel.checks import UsageError
from umbel.client.batches import SLICE
from umbel.client.net import Net
from umbel.client.work import Gradient
from umbel.engines import EngineSettings, make_engine
from umbel.flow import Request, Rows
from umbel.preflight.properties import mixes


class Counting(nn.Module):
    """Divides the gradient of a token by how often the batch has it."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.tokens = nn.Embedding(4, 5, scale_grad_by_freq=True)
        self.dropout, self.head = nn.Dropout(dropout), nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.dropout(self.tokens(x).tanh().mean(1)))
        return out


class Pulled(nn.Module):
    """Adds what is nothing in a forward pass, and the mean of all examples on the way back."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.first(x).tanh()
        mean = inner.mean(0, keepdim=True)
        out: Tensor = self.last(inner + mean - mean.detach())
        return out


def tokens(count: int = 9) -> umbel.Federation:
    """Two clients, the first with `count` examples."""
    generator = torch.manual_seed(0)
    x = torch.randint(4, (count, 3), generator=generator)
    y = torch.randint(3, (count,), generator=generator)
    return umbel.Federation.from_arrays([(x, y), (x[:5], y[:5])], test_fraction=0.0)


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_gradient_that_counts_in_the_batch_mixes(dropout: float) -> None:
    assert mixes(Net(lambda: Counting(dropout)), tokens())


def test_a_gradient_that_a_mean_goes_into_mixes() -> None:
    assert mixes(Net(Pulled), blobs())


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (normed(lambda: nn.LayerNorm(8)), (6,)),
        (normed(lambda: nn.Dropout(0.5)), (6,)),
        (convolutions(1, lambda: nn.GroupNorm(2, 4)), (1, 8, 8)),
    ],
    ids=["layer norm", "dropout", "convolutions"],
)
def test_rounding_is_no_mixing(build: Build, shape: tuple[int, ...]) -> None:
    assert not mixes(Net(build), blobs(shape=shape))


def test_attention_does_not_mix_examples() -> None:
    x = torch.randint(7, (9, 6), generator=torch.manual_seed(0))
    assert not mixes(Net(Transformer), umbel.Federation.from_arrays([(x, x), (x, x)]))


def test_slices_and_parts_do_not_change_such_a_gradient() -> None:
    federation, net = tokens(SLICE + 40), Net(Counting)
    theta = net.new(0)
    module, (x, y) = net.module(theta).train(), federation.train.of(0)
    slopes = torch.autograd.grad(
        nn.functional.cross_entropy(module(x), y), list(module.parameters())
    )
    expected = torch.cat([slope.flatten() for slope in slopes])
    rows = {"theta": Rows(theta[None], torch.tensor([0]))}
    for memory in (None, 0.001):
        settings = EngineSettings("sequential", device="cpu", memory_mb=memory)
        engine = make_engine(net, federation, settings)
        found = engine.send(Request(Gradient(), torch.tensor([0]), [0], each=rows))
        torch.testing.assert_close(found.columns["gradient"][0], expected)
    with pytest.raises(UsageError, match="2 is not allowed: the network mixes the examples"):
        make_engine(net, federation, EngineSettings(device="cpu", micro_batch_size=2))
