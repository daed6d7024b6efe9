"""FedEM by hand: one round, its start, and what it serves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import umbel
from tests.federations import answered, blobs, context, mlp, requested, setup
from umbel.algorithms import FedEM
from umbel.algorithms.mixing import MixtureState
from umbel.checks import UsageError
from umbel.client.work import MEMORY, LocalTraining, MixtureTraining, MixtureWeights
from umbel.flow import drive
from umbel.server.aggregation import Averaging
from umbel.server.ask import losses

STATE = MixtureState(
    torch.tensor([[0.0], [10.0]]),
    torch.tensor([0, 1, 0]),
    torch.tensor([[0.5, 0.5], [0.25, 0.75], [0.5, 0.5]]),
)


def test_a_round_averages_each_component_by_the_number_of_examples() -> None:
    flow = FedEM(2, LocalTraining(lr=0.5, lr_decay=0.9)).round(STATE, context([0, 1], 3, number=2))
    request = requested(flow)
    assert request.work == MixtureTraining(LocalTraining(lr=0.5 * 0.9**2))
    assert request.shared["models"].tolist() == [[0.0], [10.0]]
    assert [request.sent_to(n)[MEMORY].tolist() for n in range(2)] == [[0.5, 0.5], [0.25, 0.75]]
    after = answered(
        flow,
        [0, 1],
        update=[[[4.0], [0.0]], [[8.0], [-4.0]]],
        num_examples=[1, 3],
        memory=[[0.1, 0.9], [0.2, 0.8]],
    )
    assert after.models.tolist() == [[7.0], [7.0]]  # (4 + 3 * 8) / 4, 10 + (0 - 3 * 4) / 4
    assert after.labels.tolist() == [1, 1, 0]
    torch.testing.assert_close(after.weights, torch.tensor([[0.1, 0.9], [0.2, 0.8], [0.5, 0.5]]))


def test_a_lost_reply_leaves_the_weights_of_the_client() -> None:
    flow = FedEM(2, averaging=Averaging("equal")).round(STATE, context([0, 1], 3))
    requested(flow)
    after = answered(flow, [0], update=[[[4.0], [2.0]]], num_examples=[5], memory=[[0.75, 0.25]])
    assert after.models.tolist() == [[4.0], [12.0]]
    assert after.weights.tolist() == [[0.75, 0.25], [0.25, 0.75], [0.5, 0.5]]


def test_shared_parameters_of_all_components_take_the_same_step() -> None:
    flow = FedEM(2, averaging=Averaging("equal", ("w",))).round(STATE, context([0], 3))
    requested(flow)
    after = answered(flow, [0], update=[[[4.0], [2.0]]], num_examples=[5], memory=[[0.5, 0.5]])
    assert after.models.tolist() == [[3.0], [13.0]]


def test_clients_are_served_mixtures_and_newcomers_too() -> None:
    flow = FedEM(2).serve(STATE, context([0, 1, 2], 3))
    request = requested(flow)
    assert request.work == MixtureWeights()
    assert request.sent_to(1)[MEMORY].tolist() == [0.25, 0.75]
    served = answered(flow, [0, 2], memory=[[0.75, 0.25], [0.25, 0.75]])
    assert served.weights is not None
    assert served.weights.tolist() == [[0.75, 0.25], [0.25, 0.75], [0.25, 0.75]]
    assert served.labels.tolist() == [0, 1, 1]  # client 1 did not answer: its last weights
    assert served.models.index.tolist() == [0, 1, 1]
    assert served.models.table.tolist() == [[0.0], [10.0]]


def test_newcomers_join_their_heaviest_component_from_equal_weights() -> None:
    flow = FedEM(2).assign(STATE, context([0, 1, 4], 5))  # five of them, where three were trained
    request = requested(flow)
    assert request.work == MixtureWeights()
    assert [request.sent_to(n)[MEMORY].tolist() for n in range(3)] == [[0.5, 0.5]] * 3
    found = answered(flow, [0, 4], memory=[[0.75, 0.25], [0.125, 0.875]])
    assert found.clients.tolist() == [0, 4]
    assert found.scores.tolist() == [[0.25, 0.75], [0.875, 0.125]]
    assert found.labels.tolist() == [0, 1]


def test_a_newcomer_is_where_a_client_of_the_same_examples_is_whatever_has_the_lowest_loss() -> (
    None
):
    x, y = np.zeros((10, 1), np.float32), np.array([0.0] * 7 + [4.0] * 3, np.float32)[:, None]
    federation = umbel.Federation.from_arrays([(x, y)], test_fraction=0.0)
    net = umbel.Net(lambda: torch.nn.Linear(1, 1), umbel.REGRESSION)
    run = umbel.Run(FedEM(2), federation, net)
    first = run.start(1)
    assert isinstance(first, MixtureState)
    state = replace(first, models=torch.tensor([[0.0, 0.0], [0.0, 1.2]]))
    served = drive(FedEM(2).serve(state, run.context(0, 1)), run.clients)
    fit = drive(losses(state.models, run.context(0, 1)), run.clients)
    assert served.labels.tolist() == run.assign(state).labels.tolist() == [0]
    assert fit.losses.argmin(1).tolist() == [1]


def test_components_differ_and_every_client_starts_from_equal_weights() -> None:
    state = FedEM(num_clusters=4).init(setup(3))
    assert state.models.tolist() == [[0.0], [10.0], [20.0], [30.0]]
    assert state.weights.tolist() == [[0.25] * 4] * 3
    assert state.labels.tolist() == [0, 0, 0]


def test_clients_of_a_planted_group_come_to_one_component() -> None:
    num_groups = 3
    method = FedEM(num_groups, local=LocalTraining(lr=0.3, epochs=5, batch_size=8))
    federation = blobs([30] * 12, num_groups=num_groups)
    run = umbel.Run(method, federation, mlp(dtype=torch.float64))
    *_, (state, record) = run.rounds(10)
    assert isinstance(state, MixtureState)
    assert record.ari == 1.0
    assert state.weights.amax(1).min() > 0.9


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(UsageError, match="num_clusters: 0 is not 1 or more"):
        FedEM(num_clusters=0)
    with pytest.raises(UsageError, match=r"local\.proximal: 0\.1 is not 0"):
        FedEM(local=LocalTraining(proximal=0.1))
