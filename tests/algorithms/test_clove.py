"""CLoVE's clusters of loss vectors, and their models."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from umbel.algorithms.base import Algorithm, Setup
from umbel.algorithms.clove import CLoVE
from umbel.algorithms.fedavg import FedAvg
from umbel.algorithms.ifca import IFCA
from umbel.checks import UsageError
from umbel.client.layout import Entry, Layout
from umbel.client.net import Net
from umbel.client.objectives import Objective
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.engines import Sequential
from umbel.flow import Replies, Request, drive
from umbel.server.ask import Context

# F_i(theta) = 1/2 (theta - b_i)^2, for one weight.
HALF_SQUARED = Objective(
    losses=lambda outputs, y: 0.5 * (outputs - y).flatten() ** 2,
    correct=lambda outputs, y: (outputs - y).flatten().abs() < 0.5,
)
STEP = LocalTraining(lr=0.5, steps=1, batch_size="all")


def slopes(targets: list[float]) -> tuple[Net, Federation, Context]:
    """Clients with one example x = 1, y = b_i, and a model of one weight."""
    examples = [(torch.ones(1, 1), torch.tensor([[float(b)]])) for b in targets]
    net = Net(lambda: nn.Linear(1, 1, bias=False), HALF_SQUARED)
    count = len(targets)
    ctx = Context(
        round=0,
        num_rounds=2,
        cohort=torch.arange(count),
        num_clients=count,
        seed=0,
        layout=Layout((Entry("weight", torch.Size([1, 1])),), ()),
    )
    return net, Federation.from_arrays(examples, examples), ctx


def one_round(method: Algorithm[Any], targets: list[float], models: list[float]) -> Any:
    """The state after one round from these models."""
    net, federation, ctx = slopes(targets)
    state = method.init(setup(ctx, models))
    engine = Sequential(net, federation)
    return drive(method.round(state, ctx), engine)


def setup(ctx: Context, models: list[float]) -> Setup:
    return Setup(
        num_clients=ctx.num_clients,
        num_rounds=ctx.num_rounds,
        participation=1.0,
        layout=ctx.layout,
        new_model=lambda number: torch.tensor([float(models[number])]),
    )


def test_each_cluster_of_loss_vectors_gets_a_model_of_its_own() -> None:
    # Vectors (2, 50), (2, 50), (2, 18), (2, 18); costs (4, 100), (4, 36): 40 against 104.
    after = one_round(CLoVE(local=STEP), [0, 0, 4, 4], [2, 10])
    assert after.labels.tolist() == [0, 0, 1, 1]
    torch.testing.assert_close(after.models[:, 0], torch.tensor([1.0, 7.0]))
    torch.testing.assert_close(after.losses[0].float(), torch.tensor([2.0, 50.0]))


def test_ifca_gives_all_of_them_one_model() -> None:
    after = one_round(IFCA(local=STEP), [0, 0, 4, 4], [2, 10])
    assert after.labels.tolist() == [0, 0, 0, 0]
    torch.testing.assert_close(after.models[:, 0], torch.tensor([2.0, 10.0]))


def test_a_small_cohort_trains_by_its_last_clusters() -> None:
    net, federation, ctx = slopes([0, 0, 4, 4])
    method, engine = CLoVE(local=STEP), Sequential(net, federation)
    state = drive(method.round(method.init(setup(ctx, [2, 10])), ctx), engine)
    after = drive(method.round(state, ctx.asking(torch.tensor([2]))), engine)
    assert after.labels.tolist() == [0, 0, 1, 1]
    torch.testing.assert_close(after.models[:, 0], torch.tensor([1.0, 5.5]))  # 7 + (4 - 7) / 2
    # A client that was never asked takes the model with the lowest loss.
    alone = drive(
        method.round(method.init(setup(ctx, [10, 3])), ctx.asking(torch.tensor([2]))), engine
    )
    assert alone.labels.tolist() == [0, 0, 1, 0]


def test_it_stops_clustering_when_clusters_are_settled() -> None:
    net, federation, ctx = slopes([0, 0, 4, 4])
    method, asked, engine = CLoVE(local=STEP, stop_after=1), [], Sequential(net, federation)

    class Counting:
        def send(self, request: Request) -> Replies:
            asked.append(type(request.work).__name__)
            return engine.send(request)

    state = method.init(setup(ctx, [2, 10]))
    for _ in range(4):
        state = drive(method.round(state, ctx), Counting())
    assert asked == ["MeanLoss", "LocalTraining"] * 2 + ["LocalTraining"] * 2


def test_the_first_round_may_be_at_random_with_every_model_in_use() -> None:
    _, _, ctx = slopes([0, 0, 4, 4])
    state = CLoVE(first_round="random").init(setup(ctx, [2, 10]))
    assert sorted(state.labels.tolist()) == [0, 0, 1, 1]


def test_one_model_is_fedavg() -> None:
    net, federation, ctx = slopes([0, 1, 4, 4])
    engine = Sequential(net, federation)
    mine, plain = CLoVE(1, local=STEP), FedAvg(local=STEP)
    found = drive(mine.round(mine.init(setup(ctx, [2])), ctx), engine)
    expected = drive(plain.round(plain.init(setup(ctx, [2])), ctx), engine)
    assert torch.equal(found.models, expected.models)


def test_settings_out_of_range_are_refused() -> None:
    with pytest.raises(UsageError, match="num_clusters: 0 is not 1 or more"):
        CLoVE(0)
    with pytest.raises(UsageError, match="stop_after: 0 is not 1 or more"):
        CLoVE(stop_after=0)
