"""Requests that send other models than the network's are refused, in rounds and in evaluations."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

import umbel
from tests.federations import blobs
from umbel.method import (
    Algorithm,
    Context,
    Flow,
    Gradient,
    LocalTraining,
    Rows,
    Setup,
    State,
    gradients,
    losses,
    own_loss,
    train,
    train_best,
)

LOCAL = LocalTraining(epochs=1)
LIST: Any = [1.0]

Asks = Callable[[State, Context], Flow[Any]]


def ask(asks: Asks) -> None:
    """One round of a method that asks so, and changes nothing."""

    @dataclass(frozen=True)
    class Asking(Algorithm[State]):
        def init(self, setup: Setup) -> State:
            return State(setup.copies(2), torch.zeros(setup.num_clients, dtype=torch.long))

        def round(self, state: State, ctx: Context) -> Flow[State]:
            yield from asks(state, ctx)
            return state

    list(umbel.Run(Asking(), blobs(), umbel.Net(lambda: nn.Linear(6, 3))).rounds(1))


def wide(models: torch.Tensor) -> torch.Tensor:
    return torch.cat([models, models], 1)


ONE = r"a client gets .*, which is not \(21,\) of torch.float32"
SEVERAL = r"a client gets .*, which is not \(K, 21\) of torch.float32"


@pytest.mark.parametrize(
    ("asks", "said"),
    [
        (lambda s, c: train(Rows(s.models.double(), s.labels), c, LOCAL), f"theta: {ONE}"),
        (lambda s, c: train(Rows(s.models[:, :-1], s.labels), c, LOCAL), f"theta: {ONE}"),
        (lambda s, c: gradients(Rows(wide(s.models), s.labels), c, Gradient()), f"theta: {ONE}"),
        (lambda s, c: losses(wide(s.models), c), f"models: {SEVERAL}"),
        (lambda s, c: losses(s.models[0], c), f"models: {SEVERAL}"),
        (lambda s, c: losses(s.models[:0], c), f"models: {SEVERAL}"),
        (lambda _, c: losses(LIST, c), "models: a list instead of a tensor"),
        (lambda s, c: own_loss(Rows(wide(s.models), s.labels), c), f"models: {SEVERAL}"),
        (lambda s, c: train_best(s.models.half(), c, LOCAL), f"models: {SEVERAL}"),
        (lambda s, c: train(Rows(LIST, s.labels), c, LOCAL), "theta.table: a list instead of"),
    ],
)
def test_other_models_than_the_networks_are_refused(asks: Asks, said: str) -> None:
    with pytest.raises(umbel.UsageError, match=f"^{said}"):
        ask(asks)
