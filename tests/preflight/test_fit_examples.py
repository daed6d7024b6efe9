"""Every example is one that the network takes, or its client is named before the first round."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import umbel
from tests.engines.modules import normed
from tests.preflight.fitted import numbers
from umbel.client.batches import SLICE
from umbel.data.federation import Federation
from umbel.engines import make_engine


class Looking(nn.Module):
    """Adds up the numbers of each example (B, 2), and looks up the sum in a table of five rows."""

    def __init__(self, look_up: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.table, self.look_up = nn.Parameter(torch.randn(5, 3)), look_up

    def forward(self, x: Tensor) -> Tensor:
        return self.look_up(x.sum(1).long(), self.table)


def asserting(sums: Tensor, table: Tensor) -> Tensor:
    assert int(sums.max()) < 5, "sums go to 4"
    return table[sums]


def federation(bad: list[int]) -> Federation:
    """Three clients, of whom one has a bad example; all others have sums from 0 to 4."""
    x: np.ndarray = np.array([[0, 0], [4, 0], [0, 4], [2, 1]] * 10)
    with_bad = x.copy()
    with_bad[13] = bad
    y = np.arange(40) % 3
    names = ["north", "south", "west"]
    train = [(x, y), (with_bad, y), (x, y)]
    return Federation.from_arrays(train, [(x, y)] * 3, names=names)


@pytest.mark.parametrize(
    ("look_up", "said"),
    [
        (lambda i, table: functional.one_hot(i, 5).to(table.dtype) @ table, "Class values must be"),
        (lambda i, table: table.gather(0, i[:, None].expand(-1, 3)), "index 9 is out of bounds"),
        (lambda i, table: table[i], "index 9 is out of bounds"),
        (asserting, "AssertionError: sums go to 4"),
    ],
    ids=["one_hot", "gather", "index", "assert"],
)
def test_whatever_fails_for_an_example_is_told_with_the_clients_name(
    look_up: Callable[[Tensor, Tensor], Tensor], said: str
) -> None:
    net = umbel.Net(partial(Looking, look_up))
    with pytest.raises(umbel.UsageError, match=f"^client south: .*{said}"):
        make_engine(net, federation([9, 0]))


without_statistics = normed(lambda: nn.BatchNorm1d(8, track_running_stats=False))


def some(count: int) -> tuple[np.ndarray, np.ndarray]:
    return numbers(count, 6), np.arange(count) % 3


def sized(size: int, split: str) -> Federation:
    """Two clients with 8 examples in each split, but for one of the second client."""
    train, test, validation = (
        [some(8), some(size if name == split else 8)] for name in ("train", "test", "validation")
    )
    return Federation.from_arrays(train, test, validation=validation, names=["north", "south"])


@pytest.mark.parametrize("split", ["test", "validation"])
@pytest.mark.parametrize(
    ("size", "said"),
    [
        (1, "client south: it has one {} example, and batch normalisation without running"),
        (SLICE + 1, "client south: its 257 {} examples are evaluated in slices of 256, the last"),
    ],
)
def test_an_evaluation_of_one_example_is_refused_where_there_must_be_two(
    size: int, said: str, split: str
) -> None:
    net = umbel.Net(without_statistics)
    with pytest.raises(umbel.UsageError, match=said.format(split)):
        next(umbel.Run(umbel.FedAvg(), sized(size, split), net).rounds(1))
    next(umbel.Run(umbel.FedAvg(), sized(size + 1, split), net).rounds(1))
