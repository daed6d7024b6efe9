"""Networks that lose the dimension of the batch are refused before a batch of one comes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import umbel


class Squeezed(nn.Module):
    """Ends by squeeze(), which removes the batch, too, if it is of one example."""

    def __init__(self, outputs: int, dim: int | None = None) -> None:
        super().__init__()
        self.head, self.dim = nn.Linear(6, outputs), dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(x)
        return outputs.squeeze() if self.dim is None else outputs.squeeze(self.dim)


class Reshaped(nn.Module):
    """Fails for a batch of one: a dimension is then missing."""

    def __init__(self) -> None:
        super().__init__()
        self.head = nn.Linear(6, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.head(x.squeeze().transpose(0, 1).transpose(0, 1))
        return outputs


def federation(train: tuple[int, ...], test: tuple[int, ...], classes: bool) -> umbel.Federation:
    rng = np.random.default_rng(0)

    def some(count: int) -> tuple[Any, Any]:
        x = rng.normal(size=(count, 6)).astype(np.float32)
        return x, np.arange(count) % 3 if classes else x[:, 0]

    names = ["north", "south"]
    return umbel.Federation.from_arrays(
        [some(count) for count in train], [some(count) for count in test], names=names
    )


LOCAL = umbel.LocalTraining(epochs=1, batch_size=4)
SQUEEZED = umbel.Net(lambda: Squeezed(1), umbel.REGRESSION)


@pytest.mark.parametrize(
    ("train", "test", "said"),
    [
        ((8, 5), (4, 4), "client south: its 5 examples leave a mini-batch of one, and the network"),
        ((8, 8), (4, 1), "client south: it has one test example, and the network's outputs then"),
        ((8, 8), (257, 4), "client north: its 257 test examples are evaluated in slices of 256"),
    ],
)
@pytest.mark.parametrize("net", [SQUEEZED, umbel.Net(Reshaped)], ids=["squeezed", "fails"])
def test_it_is_refused_before_the_first_round(
    net: umbel.Net, train: tuple[int, ...], test: tuple[int, ...], said: str
) -> None:
    clients = federation(train, test, classes=net is not SQUEEZED)
    with pytest.raises(umbel.UsageError, match=r"squeeze\(-1\)") as refused:
        next(umbel.Run(umbel.FedAvg(LOCAL), clients, net).rounds(1))
    assert str(refused.value).startswith(said.partition(" the network")[0])


def test_it_runs_where_no_batch_is_of_one_or_the_last_dimension_is_named() -> None:
    next(umbel.Run(umbel.FedAvg(LOCAL), federation((8, 8), (4, 4), False), SQUEEZED).rounds(1))
    named = umbel.Net(lambda: Squeezed(1, dim=-1), umbel.REGRESSION)
    next(umbel.Run(umbel.FedAvg(LOCAL), federation((8, 5), (4, 1), False), named).rounds(1))
