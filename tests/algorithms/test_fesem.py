"""FeSEM's clusters of trained models, and WeCFL's weights."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from tests.algorithms.test_clove import HALF_SQUARED
from umbel.algorithms.base import Algorithm, Setup
from umbel.algorithms.fedavg import FedAvg
from umbel.algorithms.fesem import FeSEM
from umbel.client.layout import Entry, Layout
from umbel.client.net import Net
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.engines import Sequential
from umbel.flow import drive
from umbel.result.run import Run
from umbel.server.aggregation import Averaging
from umbel.server.ask import Context

TWO_STEPS = LocalTraining(lr=0.25, steps=2, batch_size="all")
BY_EXAMPLES = Averaging("examples")


def after(method: Algorithm[Any], models: Sequence[float], labels: Sequence[int] | None) -> Any:
    """The state after a round of two clients with b = (0, 4) and n = (1, 3)."""
    examples = [(torch.ones(n, 1), torch.full((n, 1), b)) for n, b in ((1, 0.0), (3, 4.0))]
    net = Net(lambda: torch.nn.Linear(1, 1, bias=False), HALF_SQUARED)
    layout = Layout((Entry("weight", torch.Size([1, 1])),), ())
    cohort = torch.arange(2)
    ctx = Context(round=0, num_rounds=1, cohort=cohort, num_clients=2, seed=0, layout=layout)
    setup = Setup(
        num_clients=2,
        num_rounds=1,
        participation=1.0,
        layout=layout,
        new_model=lambda number: torch.tensor([models[number]]),
    )
    state = method.init(setup)
    if labels is not None:
        state = type(state)(state.models, torch.tensor(labels), state.apart)
    engine = Sequential(net, Federation.from_arrays(examples, examples))
    return drive(method.round(state, ctx), engine)


@pytest.mark.parametrize(
    ("averaging", "centre"), [(Averaging("equal"), 41 / 16), (BY_EXAMPLES, 3.0)]
)
def test_clients_join_the_nearest_centre_after_training(
    averaging: Averaging, centre: float
) -> None:
    method = FeSEM(first="random", local=TWO_STEPS, averaging=averaging)
    state = after(method, [0.0, 3.0], labels=[1, 1])
    assert state.labels.tolist() == [1, 1]
    expected = torch.tensor([[729 / 256, 441 / 256], [3025 / 256, 49 / 256]]).double()
    torch.testing.assert_close(state.apart, expected)
    torch.testing.assert_close(state.models[:, 0], torch.tensor([0.0, centre]))


def test_a_client_that_moves_is_averaged_into_its_new_centre() -> None:
    # From 3, client 1 trains to 27/16, which is nearer to 1 than to 3.
    method = FeSEM(first="random", local=TWO_STEPS)
    state = after(method, [1.0, 3.0], labels=[1, 1])
    assert state.labels.tolist() == [0, 1]
    torch.testing.assert_close(state.models[:, 0], torch.tensor([27 / 16, 55 / 16]))


def test_the_first_cluster_is_the_one_with_the_lowest_loss() -> None:
    assert after(FeSEM(local=TWO_STEPS), [0.0, 3.0], labels=None).labels.tolist() == [0, 1]


@pytest.mark.parametrize("averaging", [Averaging("equal"), BY_EXAMPLES])
def test_one_centre_is_fedavg(averaging: Averaging) -> None:
    mine = after(FeSEM(1, local=TWO_STEPS, averaging=averaging), [1.0], labels=None)
    plain = after(FedAvg(TWO_STEPS, averaging), [1.0], labels=None)
    assert torch.equal(mine.models, plain.models)


def test_groups_whose_models_are_far_apart_are_found() -> None:
    shift = (-6.0, -5.0, 5.0, 6.0)
    examples = [(torch.ones(2, 1), torch.full((2, 1), b)) for b in shift]
    federation = Federation.from_arrays(examples, examples)
    net = Net(lambda: torch.nn.Linear(1, 1, bias=False), HALF_SQUARED)
    run = Run(FeSEM(first="random", local=TWO_STEPS), federation, net)
    *_, (state, _) = ((state, record) for state, record in run.rounds(8))
    assert state.labels[0] == state.labels[1] != state.labels[2] == state.labels[3]
