"""The oracle worked by hand: FedAvg within the groups that it is shown."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.federations import context, requested, setup
from umbel.algorithms import Oracle
from umbel.checks import UsageError
from umbel.flow import Replies


def test_each_group_has_a_model_that_its_own_clients_move() -> None:
    groups = torch.tensor([1, 0, 1, 2])
    state = Oracle().init(replace(setup(4), groups=groups))
    assert state.labels.tolist() == [1, 0, 1, 2]
    assert len(state.models) == 3
    start = state.models.flatten().tolist()
    flow = Oracle().round(state, context([0, 1, 2], 4))
    request = requested(flow)
    assert [float(request.sent_to(n)["theta"]) for n in range(3)] == [start[1], start[0], start[1]]
    update = torch.tensor([[4.0], [1.0], [0.0]])
    columns = {"update": update, "num_examples": torch.tensor([1, 5, 3])}
    with pytest.raises(StopIteration) as stopped:
        flow.send(Replies(torch.tensor([0, 1, 2]), columns))
    moved = stopped.value.value.models.flatten() - state.models.flatten()
    assert moved.tolist() == [1.0, 1.0, 0.0]


def test_it_is_refused_where_no_groups_are_planted() -> None:
    expected = "scenario: 'no planted groups' is not one with planted groups, as the oracle needs"
    with pytest.raises(UsageError, match=expected):
        Oracle().init(setup(4))
