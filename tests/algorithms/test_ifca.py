"""IFCA worked by hand: choices, both kinds of averaging, restarts, and who is served what."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.federations import answered, context, requested, setup
from umbel.algorithms import IFCA
from umbel.algorithms.base import Known
from umbel.algorithms.ifca import IFCAState
from umbel.checks import UsageError
from umbel.client.work import ChooseByLoss, Gradient, LocalTraining
from umbel.flow import Replies


def double(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def replies_of(clients: list[int], update: list[list[float]], **columns: object) -> Replies:
    tensors = {name: torch.as_tensor(rows) for name, rows in columns.items()}
    counts = torch.ones(len(clients), dtype=torch.long)
    step = {"update": torch.tensor(update), "num_examples": counts}
    return Replies(torch.tensor(clients), {**step, **tensors})


def ifca_state(*models: float, num_clients: int) -> IFCAState:
    nobody = torch.full((num_clients,), -1)
    labels = torch.zeros(num_clients, dtype=torch.long)
    unknown = torch.full((num_clients, len(models)), torch.nan).double()
    return IFCAState(torch.tensor(models)[:, None], labels, nobody, unknown)


def test_ifca_moves_each_model_by_the_mean_update_of_the_clients_that_chose_it() -> None:
    state = ifca_state(0.0, 10.0, 20.0, num_clients=4)
    flow = IFCA(num_clusters=3).round(state, context([0, 1, 2], 4))
    request = requested(flow)
    assert request.work == ChooseByLoss(LocalTraining())
    assert request.shared["models"].tolist() == [[0.0], [10.0], [20.0]]
    after = answered(
        flow,
        [0, 1, 2],
        update=[[3.0], [1.0], [-5.0]],
        num_examples=[1, 3, 7],
        chosen=[0, 0, 2],
        losses=double([[0.1, 1, 1], [0.3, 1, 1], [1, 1, 0.5]]),
    )
    assert after.models.tolist() == [[1.5], [10.0], [15.0]]  # nobody chose the second
    assert after.labels.tolist() == [0, 0, 2, 0]
    fit = IFCA(num_clusters=3).fit(after)
    assert fit.tolist() == pytest.approx([0.1, 0.3, 0.5, torch.nan], nan_ok=True)


def test_ifcas_gradient_averaging_divides_by_all_clients() -> None:
    state = ifca_state(0.0, 10.0, num_clients=4)
    algorithm = IFCA(num_clusters=2, send="gradient", local=LocalTraining(lr=0.5))
    flow = algorithm.round(state, context([0, 1, 3], 4))
    assert requested(flow).work == ChooseByLoss(Gradient())
    after = answered(
        flow,
        [0, 1, 3],
        gradient=[[8.0], [4.0], [16.0]],
        num_examples=[1, 1, 1],
        chosen=[1, 0, 0],
        losses=double([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]),
    )
    assert after.models.tolist() == [[-0.5 * 20 / 4], [10 - 0.5 * 8 / 4]]


def test_ifcas_models_differ_and_there_are_no_more_than_clients() -> None:
    state = IFCA(num_clusters=3).init(setup(3))
    assert state.models.tolist() == [[0.0], [10.0], [20.0]]
    with pytest.raises(UsageError, match=r"algorithm\.num_clusters: 4 is not at most .* 3"):
        IFCA(num_clusters=4).check(Known(1.0, num_clients=3))


def test_ifca_serves_the_model_with_the_lowest_loss_newcomers_included() -> None:
    algorithm = IFCA(num_clusters=2)
    state = replace(ifca_state(0.0, 10.0, num_clients=3), labels=torch.tensor([0, 1, 0]))
    flow = algorithm.serve(state, context([0, 1, 2], 3))
    requested(flow)
    served = answered(flow, [0, 2], losses=double([[2.0, 1.0], [1.0, 3.0]]))
    assert served.labels.tolist() == [1, 1, 0]  # client 1 did not answer: its last choice
    assert served.models.table.tolist() == [[0.0], [10.0]]


def test_models_that_all_begin_alike_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    IFCA(num_clusters=3).init(setup(num_clients=4))
    assert not caplog.messages
    alike = replace(setup(num_clients=4), new_model=lambda _: torch.ones(2))
    IFCA(num_clusters=3).init(alike)
    assert "all 3 models begin with the same values" in caplog.text
