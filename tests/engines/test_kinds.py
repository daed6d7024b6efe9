"""Data and modules of many kinds train as a plain loop in PyTorch trains them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import umbel
from tests.engines.modules import (
    Build,
    Frozen,
    OwnStatistics,
    Pixels,
    Recurrent,
    Tagger,
    Tied,
    Transformer,
    chain,
    convolutions,
    normed,
)
from tests.engines.plain import Loss, federated_averaging
from umbel.client.objectives import BINARY, CLASSIFICATION, REGRESSION, Objective
from umbel.data.federation import Federation
from umbel.engines import Sequential, Vectorised

SIZES, TESTS = (11, 6, 9, 4), 5
"""Training examples of each client, and test examples; mini-batches of 4 and of 1 are left over."""

Maker = Callable[[np.random.Generator, int], tuple[np.ndarray, np.ndarray]]
"""Draws so many examples."""


def of(x: Callable[..., Any], y: Callable[..., Any]) -> Maker:
    return lambda rng, size: (x(rng, size), y(rng, size))


def numbers(*shape: int) -> Callable[..., Any]:
    return lambda rng, size: rng.normal(size=(size, *shape))


def classes(count: int, *shape: int) -> Callable[..., Any]:
    return lambda rng, size: rng.integers(0, count, (size, *shape))


def padded(rng: np.random.Generator, size: int) -> np.ndarray:
    """Labels of sequences of unequal length, one of them of nothing but padding."""
    labels = rng.integers(0, 3, (size, 6))
    ends = rng.integers(1, 7, size)
    ends[-1] = 0
    labels[np.arange(6) >= ends[:, None]] = -100
    return np.asarray(labels)


def nothing_counts(y: Tensor) -> bool:
    return not bool((y != -100).any())


def cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    return outputs.sum() * 0 if nothing_counts(y) else F.cross_entropy(outputs, y)


def share_right(outputs: Tensor, y: Tensor) -> Tensor:
    counted = y != -100
    return (outputs.argmax(1) == y)[counted].double().mean()


def squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(outputs.reshape(y.shape), y)


def binary_cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(outputs.reshape(y.shape), y.to(outputs.dtype))


def answers_right(outputs: Tensor, y: Tensor) -> Tensor:
    return ((outputs.reshape(y.shape) > 0) == (y > 0.5)).double().mean()


OWN = Objective(
    losses=lambda outputs, y: (outputs - y).abs().sum(1),
    correct=lambda outputs, y: ((outputs - y).abs().amax(1) < 0.5).to(outputs.dtype),
)

PLAIN: dict[int, tuple[Loss, Loss | None]] = {
    id(CLASSIFICATION): (cross_entropy, share_right),
    id(REGRESSION): (squared_error, None),
    id(BINARY): (binary_cross_entropy, answers_right),
    id(OWN): (
        lambda outputs, y: OWN.losses(outputs, y).mean(),
        lambda outputs, y: OWN.correct(outputs, y).mean(),
    ),
}

Batched = Literal["yes", "if asked", "no"]
"""Whether "auto" batches clients, or could do so."""


@dataclass(frozen=True)
class Kind:
    """Data and a module of one kind."""

    name: str
    build: Build
    make: Maker
    objective: Objective = CLASSIFICATION
    batched: Batched = "yes"
    drop_last: bool = False
    moving: Sequence[str] = field(default=())


KINDS = [
    Kind("regression of y (n,)", chain(3, 1), of(numbers(3), numbers()), REGRESSION),
    Kind("regression of y (n, 2)", chain(3, 8, 2), of(numbers(3), numbers(2)), REGRESSION),
    Kind(
        "regression of x (n,)",
        lambda: nn.Sequential(nn.Unflatten(0, (-1, 1)), nn.Linear(1, 1), nn.Flatten(0)),
        of(numbers(), numbers()),
        REGRESSION,
        batched="yes",
    ),
    Kind(
        "regression of sequences",
        lambda: nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1)),
        of(numbers(5, 2), numbers(5)),
        REGRESSION,
    ),
    Kind(
        "regression of images",
        lambda: nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.Conv2d(2, 1, 1)),
        of(numbers(1, 4, 4), numbers(1, 4, 4)),
        REGRESSION,
        batched="if asked",
    ),
    Kind("binary, one output", chain(3, 4, 1), of(numbers(3), classes(2)), BINARY),
    Kind("multi-label, whole numbers", chain(3, 6, 4), of(numbers(3), classes(2, 4)), BINARY),
    Kind("multi-class, linear", chain(6, 3), of(numbers(6), classes(3))),
    Kind(
        "images of three channels",
        convolutions(3),
        of(numbers(3, 8, 8), classes(3)),
        batched="if asked",
    ),
    Kind(
        "a class for every pixel",
        Pixels,
        of(numbers(2, 4, 4), classes(3, 4, 4)),
        batched="if asked",
    ),
    Kind("LSTM", lambda: Recurrent(nn.LSTM), of(numbers(4, 2), classes(3)), batched="no"),
    Kind("LSTM, padded sequences", Tagger, of(classes(7, 6), padded), batched="no"),
    Kind("transformer with a causal mask", Transformer, of(classes(7, 6), classes(7, 6))),
    Kind("transformer, padded sequences", Transformer, of(classes(7, 6), padded)),
    Kind("tied weights", Tied, of(classes(7, 6), classes(7, 6))),
    Kind("frozen backbone and constants", Frozen, of(numbers(6), classes(3))),
    Kind(
        "own running statistics",
        OwnStatistics,
        of(numbers(6), classes(3)),
        batched="no",
        moving=["running"],
    ),
    Kind(
        "batch normalisation",
        normed(lambda: nn.BatchNorm1d(8)),
        of(numbers(6), classes(3)),
        batched="no",
        drop_last=True,
    ),
    Kind(
        "convolutions and batch normalisation",
        convolutions(1, lambda: nn.BatchNorm2d(4)),
        of(numbers(1, 8, 8), classes(3)),
        batched="no",
    ),
    Kind("layer normalisation", normed(lambda: nn.LayerNorm(8)), of(numbers(6), classes(3))),
    Kind("group normalisation", normed(lambda: nn.GroupNorm(2, 8)), of(numbers(6), classes(3))),
    Kind("dropout", normed(lambda: nn.Dropout(0.5)), of(numbers(6), classes(3)), batched="no"),
    Kind("own objective", chain(3, 8, 2), of(numbers(3), numbers(2)), OWN),
]


def federation(kind: Kind) -> Federation:
    rng = np.random.default_rng(3)
    train = [kind.make(rng, size) for size in SIZES]
    test = [kind.make(rng, TESTS) for _ in SIZES]
    return Federation.from_arrays(train, test)


@pytest.mark.parametrize("engine", ["auto", "sequential", "vectorised"])
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_every_kind_trains_as_a_plain_loop_does(
    kind: Kind, engine: Literal["auto", "sequential", "vectorised"]
) -> None:
    clients = federation(kind)
    net = umbel.Net(lambda: kind.build().double(), kind.objective, moving=kind.moving)
    local = umbel.LocalTraining(lr=0.05, epochs=2, batch_size=4, drop_last=kind.drop_last)
    settings = umbel.EngineSettings(name=engine, device="cpu")
    run = umbel.Run(umbel.FedAvg(local=local), clients, net, seed=1, engine=settings)
    if engine == "vectorised" and kind.batched == "no":
        with pytest.raises(umbel.UsageError, match=r"engine\.name: 'vectorised' is not possible"):
            list(run.rounds(2))
        return
    batched = engine == "vectorised" or (engine == "auto" and kind.batched == "yes")
    assert isinstance(run.clients, Vectorised if batched else Sequential)

    module = net.module(run.start(2).models[0])
    loss, accuracy = PLAIN[id(kind.objective)]
    expected = federated_averaging(module, clients, local, loss, accuracy, rounds=2, seed=1)

    rounds = list(run.rounds(2))
    for (state, _), after in zip(rounds, expected.states, strict=True):
        found = net.module(state.models[0]).state_dict()
        for name, values in found.items():
            if values.is_floating_point():
                torch.testing.assert_close(values, after[name], rtol=1e-9, atol=1e-11, msg=name)
    record = rounds[-1][1]
    assert record.loss == pytest.approx(expected.loss, rel=1e-9)
    if expected.accuracy is not None:
        assert record.accuracy == pytest.approx(expected.accuracy, rel=1e-9)
    assert record.refused == {}
    assert record.missing == ()
