"""The verbs refuse what they can't ask for, in words that name the argument."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.federations import context
from umbel.checks import UsageError
from umbel.flow import Flow
from umbel.method import (
    Averaging,
    Context,
    Gradient,
    LocalTraining,
    Rows,
    best_gradients,
    features,
    gradients,
    losses,
    train,
    train_best_summed,
    train_summed,
)

LOCAL: Any = LocalTraining()
GRADIENT: Any = Gradient()
CLASS: Any = LocalTraining
MODELS = torch.zeros(2, 3)
THETA: Any = Rows(MODELS, torch.tensor([0, 1, 1]))
ASKED = context([0, 1, 2], num_clients=4, num_weights=3)
LABELS = torch.tensor([0, 1, 1, 0])

Asks = Callable[[Context], Flow[Any]]


def summed(*reduction: Any) -> Asks:
    return lambda ctx: train_summed(THETA, ctx, LOCAL, Averaging().reduction(*reduction))


def places(*coordinates: Any, **kind: Any) -> Asks:
    return lambda ctx: features(MODELS[0], torch.tensor(coordinates, **kind), ctx, GRADIENT)


WRONG: list[tuple[Any, str]] = [
    (lambda ctx: gradients(THETA, ctx, LOCAL), "work: a LocalTraining instead of a Gradient"),
    (lambda ctx: best_gradients(MODELS, ctx, LOCAL), "work: a LocalTraining instead of a Gradient"),
    (lambda ctx: train(THETA, ctx, CLASS), r"local: a class .*; write LocalTraining\(\)"),
    (lambda ctx: train(THETA, ctx, GRADIENT), "local: a Gradient instead of a LocalTraining or"),
    (lambda ctx: losses(MODELS, ctx, LOCAL), "work: a LocalTraining instead of a MeanLoss"),
    (lambda ctx: features(THETA, LABELS, ctx, LOCAL), r"theta: a Rows instead of a tensor \(P,\)"),
    (
        lambda ctx: features(MODELS, LABELS, ctx, LOCAL),
        r"theta: shape: \(2, 3\) is not \(P,\), one",
    ),
    (places(True, False, True), "coordinates: 'torch.bool' is not a tensor of type torch.int64"),
    (places(0.0, 1.0), "coordinates: 'torch.float32' is not a tensor of type torch.int64"),
    (places(0, 3), "coordinates: 3 is not in 0 to 2, the numbers of a model's values"),
    (places(-1, dtype=torch.int32), "coordinates: -1 is not in 0 to 2"),
    (places([0], [1]), r"coordinates: shape: \(2, 1\) is not \(J,\)"),
    (summed(2), "reduction: labels: None is not given: clients choose no cluster; write"),
    (summed(2, LABELS[:3]), r"reduction: labels: shape: \(3,\) is not \(4,\), a cluster for each"),
    (summed(1, LABELS), "reduction: labels: 1 is not in 0 to 0, the numbers of clusters"),
    (
        lambda ctx: train_best_summed(MODELS, ctx, LOCAL, Averaging().reduction(1)),
        "reduction: num_clusters: 1 is not 2, the number of models that clients choose from",
    ),
    (
        lambda ctx: train_summed(THETA, ctx, LOCAL, Averaging()),  # type: ignore[arg-type]
        "reduction: 'Averaging' is not a Reduction; write averaging.reduction",
    ),
]


@pytest.mark.parametrize(("asks", "said"), WRONG)
def test_what_can_not_be_asked_for_is_refused(asks: Asks, said: str) -> None:
    with pytest.raises(UsageError, match=f"^{said}"):
        next(asks(ASKED))


@pytest.mark.parametrize("asks", [places(2, 0), places(1, dtype=torch.int32), summed(2, LABELS)])
def test_what_can_be_asked_for_is_asked(asks: Asks) -> None:
    assert next(asks(ASKED)).clients.tolist() == [0, 1, 2]


def test_clients_that_are_not_asked_need_no_cluster() -> None:
    ctx = context([0, 2], 4, 3)
    labels = torch.tensor([0, -1, 1, -1])
    theta = Rows(MODELS, labels[ctx.cohort])
    request = next(train_summed(theta, ctx, LOCAL, Averaging().reduction(2, labels)))
    assert request.clients.tolist() == [0, 2]


def test_whom_a_round_asks_changes_not_what_becomes_of_the_replies() -> None:
    stored = replace(ASKED, use="stored")
    assert stored.everyone.use == stored.asking(LABELS[:1]).use == "stored"
    assert stored.asking(LABELS[:1], use="averaged").use == "averaged"
