"""pFedMe by hand: one round, and what it serves."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import nn

import umbel
from tests.engines.modules import normed
from tests.federations import answered, blobs, context, requested, setup
from umbel.algorithms import PFedMe
from umbel.algorithms.pfedme import PFedMeState
from umbel.checks import UsageError
from umbel.client.layout import Entry, Layout
from umbel.client.work import LocalTraining, MoreauTraining
from umbel.flow import returned
from umbel.server.aggregation import Averaging

NOBODY = torch.zeros(3, dtype=torch.long)
STATE = PFedMeState(
    torch.tensor([[1.0]]),
    NOBODY,
    torch.tensor([[1.0], [6.0], [1.0]]),
    torch.tensor([False, True, False]),
)


def test_a_round_mixes_the_mean_into_the_global_model_and_keeps_the_personal_ones() -> None:
    algorithm = PFedMe(pull=2.0, personal_steps=3, personal_lr=0.1, beta=0.5)
    flow = algorithm.round(STATE, context([0, 1, 2], 3))
    request = requested(flow)
    assert request.work == MoreauTraining(LocalTraining(lr=0.005), 2.0, 3, 0.1)
    assert [request.sent_to(n)["theta"].tolist() for n in range(3)] == [[1.0], [1.0], [1.0]]
    after = answered(
        flow, [0, 2], update=[[4.0], [8.0]], num_examples=[1, 3], memory=[[7.0], [9.0]]
    )
    assert after.models.tolist() == [[4.0]]  # 0.5 * 1 + 0.5 * (5 + 9) / 2
    assert after.personal.tolist() == [[7.0], [6.0], [9.0]]  # client 1 did not answer
    assert after.has_personal.tolist() == [True, True, True]
    assert after.labels.tolist() == [0, 0, 0]


@pytest.mark.parametrize(
    ("beta", "after"), [(0.5, [3.0, 2.0]), (1.0, [5.0, 3.0]), (4.0, [17.0, 3.0])]
)
def test_the_server_goes_no_further_with_buffers_than_to_their_mean(
    beta: float, after: list[float]
) -> None:
    state = replace(STATE, models=torch.tensor([[1.0, 1.0]]), personal=torch.ones(3, 2))
    size = torch.Size([1])
    known = Layout((Entry("w", size),), (Entry("running_var", size),))
    flow = PFedMe(beta=beta).round(state, replace(context([0, 2], 3), layout=known))
    requested(flow)
    moved = answered(
        flow,
        [0, 2],
        update=[[2.0, 1.0], [6.0, 3.0]],
        num_examples=[1, 3],
        memory=[[7.0, 2.0], [9.0, 4.0]],
    )
    assert moved.models.tolist() == [after]


def test_running_variances_stay_positive_whatever_beta_is() -> None:
    net = umbel.Net(normed(lambda: nn.BatchNorm1d(8)))
    local = LocalTraining(lr=0.005, epochs=2, batch_size="all")
    run = umbel.Run(PFedMe(beta=4.0, local=local), blobs((20, 30, 40, 20)), net, participation=0.5)
    for state, _ in run.rounds(3):
        assert (net.layout.tensors(state.models[0])["1.running_var"] >= 0).all()


def test_clients_may_weigh_by_their_examples() -> None:
    flow = PFedMe(averaging=Averaging("examples")).round(STATE, context([0, 2], 3))
    requested(flow)
    after = answered(
        flow, [0, 2], update=[[4.0], [8.0]], num_examples=[1, 3], memory=[[7.0], [9.0]]
    )
    assert after.models.tolist() == [[8.0]]


def test_the_learning_rate_decays_with_the_rounds() -> None:
    algorithm = PFedMe(local=LocalTraining(lr=0.5, lr_decay=0.9))
    request = requested(algorithm.round(STATE, context([0], 3, number=2)))
    assert isinstance(request.work, MoreauTraining)
    assert request.work.local == LocalTraining(lr=0.5 * 0.9**2)


def test_clients_are_served_their_personal_model_and_newcomers_the_global_one() -> None:
    flow = PFedMe().serve(STATE, context([0, 1], 3))
    served = returned(flow, lambda _: pytest.fail("asked"))
    assert [served.models.row(n).tolist() for n in range(2)] == [[1.0], [6.0]]
    assert served.labels.tolist() == [0, 0]
    assert served.adapted_from is not None
    assert [served.adapted_from.row(n).tolist() for n in range(2)] == [[1.0], [1.0]]


def test_nobody_has_a_personal_model_at_first() -> None:
    start = replace(setup(2), new_model=lambda number: torch.full((1,), number + 5.0))
    state = PFedMe().init(start)
    assert state.models.tolist() == [[5.0]]
    assert state.has_personal.tolist() == [False, False]


@pytest.mark.parametrize("name", ["pull", "personal_steps", "personal_lr", "beta"])
def test_settings_out_of_range_are_refused(name: str) -> None:
    with pytest.raises(UsageError, match=f"{name}: 0 is not"):
        PFedMe(**{name: 0})  # type: ignore[arg-type]
