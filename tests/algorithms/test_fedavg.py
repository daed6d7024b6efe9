"""FedAvg worked by hand: the weighted mean of updates."""

from __future__ import annotations

import torch

from tests.federations import answered, context, requested
from umbel.algorithms import FedAvg
from umbel.algorithms.base import State
from umbel.client.work import LocalTraining
from umbel.server.aggregation import Averaging


def test_fedavg_moves_the_model_by_the_mean_update_of_those_who_answered() -> None:
    state = State(torch.tensor([[1.0, 2.0]]), torch.zeros(4, dtype=torch.long))
    flow = FedAvg().round(state, context([0, 1, 3], 4, num_weights=2))
    assert requested(flow).work == LocalTraining()
    after = answered(flow, [0, 3], update=[[4.0, 0.0], [0.0, 8.0]], num_examples=[1, 3])
    assert after.models.tolist() == [[2.0, 8.0]]


def test_fedavg_can_weigh_clients_equally() -> None:
    state = State(torch.tensor([[0.0]]), torch.zeros(2, dtype=torch.long))
    flow = FedAvg(averaging=Averaging(weights="equal")).round(state, context([0, 1], 2))
    requested(flow)
    assert answered(flow, [0, 1], update=[[4.0], [0.0]], num_examples=[1, 3]).models == 2.0
