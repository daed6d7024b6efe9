"""Local training alone, worked by hand: every client keeps a model of its own."""

from __future__ import annotations

import torch

from tests.federations import answered, context, requested, setup
from umbel.algorithms import (
    LocalOnly,
)
from umbel.algorithms.base import State


def test_local_only_moves_each_client_by_its_own_update() -> None:
    state = State(torch.tensor([[1.0], [2.0], [3.0]]), torch.arange(3))
    flow = LocalOnly().round(state, context([0, 2], 3))
    request = requested(flow)
    assert [request.sent_to(n)["theta"].tolist() for n in range(2)] == [[1.0], [3.0]]
    after = answered(flow, [2, 0], update=[[0.5], [-4.0]], num_examples=[1, 9])
    assert after.models.tolist() == [[-3.0], [2.0], [3.5]]
    assert after.labels.tolist() == [0, 1, 2]


def test_local_only_starts_everyone_from_the_same_model() -> None:
    assert LocalOnly().init(setup(3)).models.tolist() == [[0.0], [0.0], [0.0]]
