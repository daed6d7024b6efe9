"""Per-FedAvg by hand: one round, and what it serves."""

from __future__ import annotations

import pytest
import torch

from tests.federations import answered, context, requested
from umbel.algorithms import PerFedAvg
from umbel.algorithms.base import State
from umbel.checks import UsageError
from umbel.client.work import LocalTraining, MetaTraining

STATE = State(torch.tensor([[1.0]]), torch.zeros(3, dtype=torch.long))


def test_a_round_moves_the_model_by_the_mean_update() -> None:
    local = LocalTraining(lr=0.5, lr_decay=0.9)
    algorithm = PerFedAvg(alpha=0.2, variant="hessian-free", delta=0.1, local=local)
    flow = algorithm.round(STATE, context([0, 1, 2], 3, number=2))
    request = requested(flow)
    assert request.work == MetaTraining(LocalTraining(lr=0.5 * 0.9**2), 0.2, "hessian-free", 0.1)
    assert [request.sent_to(n)["theta"].tolist() for n in range(3)] == [[1.0], [1.0], [1.0]]
    after = answered(flow, [0, 2], update=[[4.0], [8.0]], num_examples=[1, 3])
    assert after.models.tolist() == [[7.0]]


def test_each_client_is_served_the_model_after_a_step_on_its_own_examples() -> None:
    flow = PerFedAvg(alpha=0.2, served_steps=3).serve(STATE, context([0, 1, 2], 3))
    assert requested(flow).work == LocalTraining(lr=0.2, steps=3, batch_size="all")
    served = answered(flow, [0, 2], update=[[4.0], [8.0]], num_examples=[1, 3])
    # Client 1 did not answer: the global model.
    assert [served.models.row(n).tolist() for n in range(3)] == [[5.0], [1.0], [9.0]]
    assert served.labels.tolist() == [0, 0, 0]
    assert served.adapted_from is not None
    assert served.adapted_from.row(2).tolist() == [1.0]


@pytest.mark.parametrize("name", ["alpha", "delta", "served_steps"])
def test_settings_out_of_range_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}: 0 is not"):
        PerFedAvg(**{name: 0})  # type: ignore[arg-type]
