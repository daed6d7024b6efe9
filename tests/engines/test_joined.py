"""Small clients that are sent one model are evaluated in one pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.federations import blobs
from umbel.client.batches import IGNORED
from umbel.client.net import Net
from umbel.client.work import Evaluation, MeanLoss, Work
from umbel.data.federation import Federation
from umbel.data.splits import Split
from umbel.engines import Sequential
from umbel.engines.processes.workers import Workers
from umbel.engines.sequential import JOINED
from umbel.flow import Request, Rows


class Centred(nn.Linear):
    """Subtracts the mean of the batch, in evaluation, too."""

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x - x.mean(0))


class AlwaysDropout(nn.Dropout):
    """Draws random numbers in evaluation, too."""

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.dropout(x, self.p, training=True)


class Scores(nn.Module):
    """Three scores for each of four words."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.embedding(x).transpose(1, 2)
        return scores


def with_sizes(sizes: list[int], labels: bool = False) -> Federation:
    """A federation with so many test examples of each client; words with labels that are left out
    at some places, or blobs."""
    rng, count = np.random.default_rng(0), sum(sizes)
    x = torch.from_numpy(rng.normal(size=(count, 5)).astype(np.float32))
    y = torch.from_numpy(rng.integers(0, 3, count))
    if labels:
        x = torch.from_numpy(rng.integers(0, 5, (count, 4)))
        y = torch.from_numpy(rng.integers(0, 3, (count, 4)))
        y[rng.random((count, 4)) < 0.4] = IGNORED
        y[: sizes[0]] = IGNORED
    split = Split(x, y, np.cumsum([0, *sizes]))
    names = tuple(map(str, range(len(sizes))))
    return replace(blobs(), train=split, test=split, groups=None, names=names, num_classes=3)


def normed() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 3))


def request(work: Work, net: Net, clients: int) -> Request:
    """The work for all clients, every third of which is served another model."""
    models, everyone = torch.stack([net.new(0), net.new(1)]), torch.arange(clients)
    if isinstance(work, MeanLoss):
        return Request(work, everyone, [0] * clients, {"models": models})
    each = {"theta": Rows(models, (everyone % 3 == 0).long())}
    return Request(work, everyone, [0] * clients, {}, each)


SIZES = [7, 60, 40, 0, JOINED + 1, 1, 50, 30, 0, 20]


@pytest.mark.parametrize("work", [Evaluation(), MeanLoss()])
@pytest.mark.parametrize("labels", [False, True])
def test_joined_clients_have_the_results_of_each_alone(work: Work, labels: bool) -> None:
    federation = with_sizes(SIZES, labels)
    net = Net(Scores if labels else normed)
    engine, asked = Sequential(net, federation), request(work, net, len(SIZES))
    assert max(len(chunk) for chunk in engine.chunks(asked)) > 1
    together = engine.send(asked).columns
    for client in range(len(SIZES)):
        alone = engine.send(asked.pick(torch.tensor([client]))).columns
        for name, column in together.items():
            torch.testing.assert_close(column[client], alone[name][0], equal_nan=True)


def test_workers_join_the_same_clients() -> None:
    federation, net = with_sizes([10] * 40), Net(normed)
    asked = request(Evaluation(), net, 40)
    here = Sequential(net, federation).send(asked).columns
    engine = Workers(Sequential(net, federation), 2)
    for _ in range(2):  # the first request is not divided
        there = engine.send(asked).columns
        assert all(torch.equal(there[name], column) for name, column in here.items())


def test_clients_are_joined_by_model_up_to_a_number_of_examples() -> None:
    net = Net(normed)
    engine = Sequential(net, with_sizes(SIZES))
    asked = request(Evaluation(), net, len(SIZES))
    chunks = [sorted(chunk.tolist()) for chunk in engine.chunks(asked)]
    assert sorted(client for chunk in chunks for client in chunk) == list(range(len(SIZES)))
    for chunk in chunks:
        assert len({client % 3 == 0 for client in chunk}) == 1
        assert len(chunk) == 1 or sum(SIZES[client] for client in chunk) <= JOINED
        assert len(chunk) == 1 or all(SIZES[client] for client in chunk)


@pytest.mark.parametrize(
    ("work", "build"),
    [
        (Evaluation(), lambda: Centred(5, 3)),
        (MeanLoss(), lambda: nn.Sequential(AlwaysDropout(), nn.Linear(5, 3))),
        (Evaluation(metrics=("macro-f1",)), normed),
        (MeanLoss(max_examples=8), normed),
    ],
)
def test_clients_stay_alone_if_their_results_depend_on_others(
    work: Work, build: Callable[[], nn.Module]
) -> None:
    net = Net(build)
    engine = Sequential(net, with_sizes([5] * 9))
    assert all(len(chunk) == 1 for chunk in engine.chunks(request(work, net, 9)))
