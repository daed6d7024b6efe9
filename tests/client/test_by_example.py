"""A first layer kept by example goes through the same steps as its weights."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.engines.test_equality import TOLERANCE, assert_same, request
from tests.federations import blobs, mlp
from umbel.client.kernels import by_example
from umbel.client.kernels.by_example import Span, is_faster
from umbel.client.kernels.schedule import BatchSchedule
from umbel.client.optimizers import SGD
from umbel.client.work import (
    ChooseByLoss,
    LocalTraining,
    MetaTraining,
    MixtureTraining,
    MoreauTraining,
    Work,
)
from umbel.engines import Sequential, Vectorised

HEAVY = LocalTraining(batch_size=4, epochs=2, optimizer=SGD(momentum=0.9))

WORKS: list[Work] = [
    LocalTraining(batch_size=4, epochs=3),
    LocalTraining(batch_size=100, epochs=3),
    LocalTraining(batch_size=4, steps=7, proximal=0.5),
    LocalTraining(batch_size=4, epochs=3, optimizer=SGD(momentum=0.9)),
    LocalTraining(batch_size=4, epochs=3, proximal=0.3, optimizer=SGD(momentum=0.9)),
    LocalTraining(batch_size=4, epochs=3, optimizer=SGD(weight_decay=0.1)),
    ChooseByLoss(LocalTraining(batch_size=4, epochs=2)),
    MixtureTraining(HEAVY),
    MoreauTraining(LocalTraining(batch_size=4, lr=0.01), 15.0, personal_steps=3, personal_lr=0.05),
    MoreauTraining(HEAVY, 2.0, personal_steps=2, personal_lr=0.05),
    *(MetaTraining(HEAVY, 0.1, name, 0.01) for name in ("first-order", "hessian-free", "exact")),
]


@pytest.fixture
def always(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Let it pay for any layer; the paths that were begun."""
    begun: list[object] = []
    build = by_example.ByExample.of

    def of(*given: Any) -> object:
        begun.append(build(*given))
        return begun[-1]

    monkeypatch.setattr(by_example, "is_faster", lambda *_, **__: True)
    monkeypatch.setattr(by_example.ByExample, "of", of)
    return begun


@pytest.mark.parametrize("work", WORKS, ids=str)
def test_updates_are_those_of_steps_on_the_weights(work: Work, always: list[object]) -> None:
    net, federation = mlp(dtype=torch.float64), blobs()
    asked = request(work, net, [0, 1, 2, 3, 5])
    expected = Sequential(net, federation).send(asked)
    dense = net.using("dense")
    for engine in (Vectorised(dense, federation), Sequential(dense, federation)):
        assert_same(engine.send(asked), expected, TOLERANCE[torch.float64])
    decays = "weight_decay=0.1" in str(work)
    assert bool(always) is not decays


@pytest.mark.parametrize(
    ("examples", "epochs", "size_in", "better"),
    [
        (200, 10, 784, True),  # W2: few examples, seen often
        (200, 1, 784, False),  # each seen once
        (5000, 10, 784, False),  # more examples than inputs
        (20, 10, 64, False),  # small weights
    ],
)
def test_it_pays_where_few_examples_are_seen_often(
    examples: int, epochs: int, size_in: int, better: bool
) -> None:
    plan = LocalTraining(epochs=epochs, batch_size=20).batching.plan(examples, 0)
    schedule = BatchSchedule.of(torch.from_numpy(plan)[None])
    span = Span.of(schedule)
    assert span.sizes == [examples]
    assert is_faster(span, schedule, size_in, 200 if size_in > 64 else 10) is better


def test_outputs_of_weights_that_do_not_move_are_computed_once_if_examples_are_seen_again() -> None:
    for epochs, better in ((2, True), (1, False)):
        plan = LocalTraining(epochs=epochs, batch_size=20).batching.plan(200, 0)
        schedule = BatchSchedule.of(torch.from_numpy(plan)[None])
        assert is_faster(Span.of(schedule), schedule, 784, 200, moves=False) is better
