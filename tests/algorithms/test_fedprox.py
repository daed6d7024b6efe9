"""FedProx worked by hand: FedAvg of clients that are pulled to its model."""

from __future__ import annotations

import pytest
import torch

from tests.federations import answered, context, requested
from umbel.algorithms import FedProx
from umbel.algorithms.base import State
from umbel.checks import UsageError
from umbel.client.work import LocalTraining


def test_fedprox_is_fedavg_with_a_proximal_term() -> None:
    state = State(torch.tensor([[1.0]]), torch.zeros(2, dtype=torch.long))
    flow = FedProx(mu=0.3, local=LocalTraining(lr=0.5, lr_decay=0.9)).round(
        state, context([0, 1], 2, number=2)
    )
    assert requested(flow).work == LocalTraining(lr=0.5 * 0.9**2, proximal=0.3)
    after = answered(flow, [0, 1], update=[[4.0], [0.0]], num_examples=[3, 1])
    assert after.models.tolist() == [[4.0]]
    with pytest.raises(UsageError, match="mu: -1 is not 0 or more"):
        FedProx(mu=-1)
