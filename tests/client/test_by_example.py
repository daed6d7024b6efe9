"""A first layer kept by example goes through the same steps as its weights."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.engines.test_equality import TOLERANCE, assert_same, request
from tests.federations import SIZES, blobs, mlp
from umbel.client.kernels import by_example
from umbel.client.kernels.by_example import Span, is_faster
from umbel.client.kernels.schedule import BatchSchedule
from umbel.client.net import Net
from umbel.client.objectives import REGRESSION
from umbel.client.optimizers import SGD
from umbel.client.work import ChooseByLoss, LocalTraining, Work
from umbel.data.federation import Federation
from umbel.engines import Sequential, Vectorised

WORKS: list[Work] = [
    LocalTraining(batch_size=4, epochs=3),
    LocalTraining(batch_size=100, epochs=3),
    LocalTraining(batch_size=4, steps=7, proximal=0.5),
    LocalTraining(batch_size=4, epochs=3, optimizer=SGD(momentum=0.9)),
    LocalTraining(batch_size=4, epochs=3, proximal=0.3, optimizer=SGD(momentum=0.9)),
    LocalTraining(batch_size=4, epochs=3, optimizer=SGD(weight_decay=0.1)),
    ChooseByLoss(LocalTraining(batch_size=4, epochs=2)),
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


@pytest.mark.parametrize("bias", [True, False])
def test_a_single_layer_may_be_kept_so(bias: bool, always: list[object]) -> None:
    net = Net(lambda: torch.nn.Linear(6, 2, bias=bias, dtype=torch.float64), REGRESSION)
    generator = torch.manual_seed(0)
    shards = [
        (torch.rand(n, 6, generator=generator), torch.rand(n, 2, generator=generator))
        for n in SIZES
        if n
    ]
    federation = Federation.from_arrays(shards, test_fraction=0.0)
    asked = request(LocalTraining(batch_size=4, epochs=3), net, [0, 1, 2])
    expected = Sequential(net, federation).send(asked)
    found = Vectorised(net.using("dense"), federation).send(asked)
    assert_same(found, expected, TOLERANCE[torch.float64])
    assert always


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
    assert is_faster(span, schedule, size_in, 200 if size_in > 64 else 10, half=False) is better


def test_rounding_is_no_larger_than_that_of_steps_on_the_weights(always: list[object]) -> None:
    """Rounding in single precision, against double: products of many steps are rounded once."""
    work = LocalTraining(lr=0.01, batch_size=4, epochs=20)
    net, federation = mlp(), blobs()
    asked = request(work, net, [0, 1, 2, 3, 5])
    exact = Sequential(mlp(dtype=torch.float64), federation).send(
        request(work, mlp(dtype=torch.float64), [0, 1, 2, 3, 5])
    )
    kept = Vectorised(net.using("dense"), federation).send(asked)
    stepped = Sequential(net.using("in-place"), federation).send(asked)
    assert always
    errors = [
        float((found.columns["update"] - exact.columns["update"]).norm())
        for found in (kept, stepped)
    ]
    assert errors[0] < 2 * errors[1]


def test_products_of_examples_may_be_larger_than_float16_holds(always: list[object]) -> None:
    """Inputs of a few hundred are fine in float16, and their squares are not."""
    federation = blobs()
    federation = replace(federation, train=replace(federation.train, x=150 * federation.train.x))
    updates = []
    for dtype in (torch.float32, torch.float16):
        net = mlp(dtype=dtype)
        asked = request(LocalTraining(lr=1e-4, batch_size=4, epochs=3), net, [0, 1, 2])
        sent = Vectorised(net.using("dense"), federation).send(asked).columns["update"]
        assert sent.dtype == dtype
        updates.append(sent.double())
    assert len(always) == 2
    exact, found = updates
    assert (found - exact).norm() < 0.02 * exact.norm()
