"""Every example is one that the network takes, or its client is named before the first round."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import umbel
from tests.engines.fitted import clients, numbers
from tests.engines.modules import chain, normed
from umbel.client.batches import SLICE
from umbel.data.federation import Federation
from umbel.engines import EngineSettings, make_engine
from umbel.networks.tokens import longest
from umbel.preflight.examples import check_batches


class Looking(nn.Module):
    """Adds up the numbers of each example (B, 2), and looks up the sum in a table of five rows."""

    def __init__(self, look_up: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.table, self.look_up = nn.Parameter(torch.randn(5, 3)), look_up

    def forward(self, x: Tensor) -> Tensor:
        return self.look_up(x.sum(1).long(), self.table)


class Embedding(nn.Module):
    """The same, by a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Embedding(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x.sum(1).long())
        return out


class Cut(nn.Module):
    """Reads neighbours, three at a time, up to the last id of a mini-batch that is not 0."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.over_three = nn.Embedding(9, 4), nn.Conv1d(4, 3, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.over_three(self.table(x[:, : longest(x != 0)]).mT).mean(2)
        return out


def asserting(sums: Tensor, table: Tensor) -> Tensor:
    assert int(sums.max()) < 5, "sums go to 4"
    return table[sums]


def federation(bad: list[int], kind: type) -> Federation:
    """Three clients, of whom one has a bad example; all others have sums from 0 to 4."""
    x: np.ndarray = np.array([[0, 0], [4, 0], [0, 4], [2, 1]] * 10, kind)
    with_bad = x.copy()
    with_bad[13] = bad
    y = np.arange(40) % 3
    names = ["north", "south", "west"]
    train = [(x, y), (with_bad, y), (x, y)]
    return Federation.from_arrays(train, [(x, y)] * 3, names=names)


@pytest.mark.parametrize("engine", ["auto", "sequential"])
@pytest.mark.parametrize("kind", [int, float])
@pytest.mark.parametrize(
    "build", [Embedding, partial(Looking, functional.embedding)], ids=["layer", "function"]
)
def test_a_row_that_forward_computes_and_the_embedding_lacks_is_refused(
    build: Callable[[], nn.Module], kind: type, engine: Any
) -> None:
    # Neither 4 is the largest of its column alone: only their sum is out of range.
    with pytest.raises(umbel.UsageError, match=r"^client south: x: an input is not a row of the"):
        make_engine(umbel.Net(build), federation([4, 4], kind), EngineSettings(name=engine))
    make_engine(umbel.Net(build), federation([2, 2], kind), EngineSettings(name=engine))


@pytest.mark.parametrize("kind", [int, float])
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
    look_up: Callable[[Tensor, Tensor], Tensor], said: str, kind: type
) -> None:
    net = umbel.Net(partial(Looking, look_up))
    with pytest.raises(umbel.UsageError, match=f"^client south: .*{said}"):
        make_engine(net, federation([9, 0], kind))


@pytest.mark.parametrize("split", ["train", "test"])
def test_a_warning_names_the_client_whose_shortest_example_can_not_be_alone(
    split: str, caplog: pytest.LogCaptureFixture
) -> None:
    x = np.arange(120).reshape(20, 6) % 8 + 1
    short = x.copy()
    x[:, 4:], short[3, 2:] = 0, 0
    y = np.arange(20) % 3
    shards = {"train": [(x, y), (x, y)], "test": [(x, y), (x, y)]}
    make_engine(umbel.Net(Cut), Federation.from_arrays(shards["train"], shards["test"]))
    assert not caplog.messages
    shards[split][1] = short, y
    make_engine(umbel.Net(Cut), Federation.from_arrays(shards["train"], shards["test"]))
    (said,) = caplog.messages
    assert said.startswith("client 1: a mini-batch of its shortest example alone would end the run")


def test_networks_that_look_nothing_up_are_tried_on_few_examples() -> None:
    seen = []

    class Watched(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            seen.append(len(x))
            return super().forward(x)

    many = clients(numbers(2000, 6), np.arange(2000) % 3, count=1)
    make_engine(umbel.Net(lambda: Watched(6, 3)), many)
    assert sum(seen) < 200


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


@pytest.mark.parametrize("build", [chain(6, 3), normed(lambda: nn.BatchNorm1d(8))])
def test_other_networks_evaluate_one_example(build: Callable[[], nn.Module]) -> None:
    net = umbel.Net(build)
    next(umbel.Run(umbel.FedAvg(), sized(1, "test"), net).rounds(1))


def test_training_examples_are_judged_where_the_method_evaluates_them() -> None:
    net, single = umbel.Net(without_statistics), sized(SLICE + 1, "train")
    local = umbel.LocalTraining(drop_last=True)
    choosing = umbel.IFCA(2, local=local)
    for method in (choosing, umbel.Restarts(choosing, 2)):
        with pytest.raises(umbel.UsageError, match="south: its 257 training examples are"):
            check_batches(net, single, method)
    check_batches(net, single, umbel.FedAvg(local=local))
