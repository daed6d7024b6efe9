"""One round of each method with replies written by hand, and its exact numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.federations import answered, context, requested, setup
from umbel.algorithms import IFCA, FedAvg, FedProx, LocalOnly
from umbel.algorithms.base import State
from umbel.algorithms.ifca import IFCAState
from umbel.checks import UsageError
from umbel.client.work import ChooseByLoss, Gradient, LocalTraining
from umbel.flow import Replies
from umbel.server.aggregation import Averaging


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


def double(rows: list[list[float]]) -> torch.Tensor:
    return torch.tensor(rows, dtype=torch.float64)


def replies_of(clients: list[int], update: list[list[float]], **columns: object) -> Replies:
    tensors = {name: torch.as_tensor(rows) for name, rows in columns.items()}
    counts = torch.ones(len(clients), dtype=torch.long)
    step = {"update": torch.tensor(update), "num_examples": counts}
    return Replies(torch.tensor(clients), {**step, **tensors})


def ifca_state(*models: float, num_clients: int) -> IFCAState:
    nobody = torch.full((1, num_clients), -1)
    labels = torch.zeros(num_clients, dtype=torch.long)
    unknown = torch.full((1, num_clients, len(models)), torch.nan).double()
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
    assert after.fits[0, :3].tolist() == pytest.approx([0.1, 0.3, 0.5])


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
        IFCA(num_clusters=4).init(setup(3))


def test_ifca_keeps_the_restart_with_the_lowest_loss() -> None:
    algorithm = IFCA(num_clusters=2, restarts=2, trial_rounds=1)
    state = algorithm.init(setup(2))
    flow = algorithm.round(state, context([0, 1], 2))
    assert requested(flow).shared["models"].tolist() == [[0.0], [10.0]]
    second = flow.send(
        replies_of([0, 1], [[1.0], [1.0]], chosen=[0, 0], losses=double([[0.9, 1.0], [0.8, 1.0]]))
    )
    assert second.shared["models"].tolist() == [[20.0], [30.0]]
    after = answered(
        flow,
        [0, 1],
        update=[[2.0], [4.0]],
        num_examples=[1, 1],
        chosen=[1, 0],
        losses=double([[1.0, 0.3], [0.2, 1.0]]),
    )
    assert after.models.tolist() == [[24.0], [32.0]]
    assert after.labels.tolist() == [1, 0]
    assert after.choices.tolist() == [[1, 0]]


def test_ifca_keeps_the_most_balanced_restart_if_asked() -> None:
    algorithm = IFCA(num_clusters=2, restarts=2, trial_rounds=1, keep="most-balanced")
    flow = algorithm.round(algorithm.init(setup(2)), context([0, 1], 2))
    requested(flow)
    flow.send(
        replies_of([0, 1], [[1.0], [1.0]], chosen=[0, 0], losses=double([[0.1, 1], [0.1, 1]]))
    )
    after = answered(
        flow,
        [0, 1],
        update=[[2.0], [4.0]],
        num_examples=[1, 1],
        chosen=[1, 0],
        losses=double([[1.0, 0.9], [0.9, 1.0]]),
    )
    assert after.models.tolist() == [[24.0], [32.0]]


def test_ifca_serves_the_model_with_the_lowest_loss_newcomers_included() -> None:
    algorithm = IFCA(num_clusters=2)
    state = replace(ifca_state(0.0, 10.0, num_clients=3), labels=torch.tensor([0, 1, 0]))
    flow = algorithm.serve(state, context([0, 1, 2], 3))
    requested(flow)
    served = answered(flow, [0, 2], losses=double([[2.0, 1.0], [1.0, 3.0]]))
    assert served.labels.tolist() == [1, 1, 0]  # client 1 did not answer: its last choice
    assert served.models.table.tolist() == [[0.0], [10.0]]
