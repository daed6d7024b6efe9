"""CFL-GP: hand-worked rounds, and the rules that keep its features honest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.federations import answered, blobs, context, mlp, requested, setup
from umbel.algorithms import CFLGP
from umbel.algorithms.cfl_gp import CFLGPState
from umbel.checks import UsageError
from umbel.client.net import Net
from umbel.client.objectives import REGRESSION
from umbel.client.work import Feature, Gradient, LocalTraining, Quantised
from umbel.data.federation import Federation
from umbel.engines.replies.validation import Limits
from umbel.flow import Engine, Replies, Request
from umbel.result.run import Run
from umbel.server import features as kept_products
from umbel.server.clustering import inner_products


def state(**changes: Any) -> CFLGPState:
    """Two models of two values, four clients, the first two in cluster 0."""
    return replace(
        CFLGPState(
            models=torch.tensor([[1.0, 1.0], [2.0, 2.0]]),
            labels=torch.tensor([0, 0, 1, 1]),
            features=(torch.zeros(4, 2), torch.zeros(4, 2)),
            products=torch.zeros(2, 0, 0).double(),
            counts=torch.zeros(4, 2, dtype=torch.long),
            coordinates=torch.tensor([0, 1]),
            anchors=torch.zeros(2, 2),
            queries=0,
            last_change=0,
            stopped=False,
        ),
        **changes,
    )


def test_the_first_clusters_are_random_and_balanced() -> None:
    labels = [CFLGP(3).init(setup(10, seed=seed)).labels for seed in range(5)]
    for found in labels:
        assert sorted(torch.bincount(found).tolist()) == [3, 3, 4]
    assert len({tuple(found.tolist()) for found in labels}) > 1


def test_a_round_steps_by_the_mean_gradient_and_then_clusters_by_the_features() -> None:
    method = CFLGP(2, local=LocalTraining(lr=0.5))
    flow = method.round(state(), context([0, 1, 2, 3], 4, num_weights=2))
    assert requested(flow).work == Gradient(64)
    asked = flow.send(
        Replies(
            torch.arange(4),
            {
                "gradient": torch.tensor([[2.0, 0.0], [0.0, 2.0], [4.0, 4.0], [0.0, 0.0]]),
                "num_examples": torch.tensor([1, 9, 1, 9]),
            },
        )
    )
    # Model 0 as it was before the step goes to all.
    assert asked.work == Feature(Gradient(64))
    assert asked.shared["theta"].tolist() == [1.0, 1.0]
    after = answered(flow, [0, 1, 2, 3], feature=[[1.0, 0.0], [-1.0, 0.0], [1.0, 0.5], [-1.0, 0.5]])
    assert after.models.tolist() == [[0.5, 0.5], [1.0, 1.0]]
    assert after.features[0].tolist() == [[1.0, 0.0], [-1.0, 0.0], [1.0, 0.5], [-1.0, 0.5]]
    assert after.features[1].abs().sum() == 0
    # Clients 0 and 2 agree, and so do 1 and 3: two of four can stay where they were.
    assert after.labels[0] == after.labels[2] != after.labels[1] == after.labels[3]
    assert (after.labels == torch.tensor([0, 0, 1, 1])).sum() == 2
    assert after.anchors.tolist() == [[1.0, 1.0], [0.0, 0.0]]
    assert (after.queries, after.last_change, after.stopped) == (1, 0, False)


def test_steps_by_gradients_become_smaller_as_the_learning_rate_does() -> None:
    method = CFLGP(2, local=LocalTraining(lr=0.5, lr_decay=0.5))
    flow = method.round(state(), context([0, 1], 4, num_weights=2, number=2))
    requested(flow)
    sent = {"gradient": torch.tensor([[2.0, 0.0], [0.0, 2.0]]), "num_examples": torch.ones(2)}
    flow.send(Replies(torch.arange(2), sent))
    after = answered(flow, [0, 1], feature=[[1.0, 0.0], [-1.0, 0.0]])
    assert after.models[0].tolist() == [1 - 0.125, 1 - 0.125]


def test_gradients_may_be_summed_instead() -> None:
    method = CFLGP(2, local=LocalTraining(lr=0.5), reduction="sum", period=2)
    flow = method.round(state(), context([0, 1], 4, num_weights=2))
    requested(flow)
    after = answered(flow, [0, 1], gradient=[[2.0, 0.0], [0.0, 2.0]], num_examples=[1, 9])
    assert after.models.tolist() == [[0.0, 0.0], [2.0, 2.0]]


def asked_in(method: CFLGP, rounds: int) -> list[list[Request]]:
    """What is asked in each round of a run on blobs."""
    run = Run(method, blobs([20] * 8), mlp())
    asked: list[list[Request]] = []

    class Listening:
        def send(self, request: Request) -> Replies:
            asked[-1].append(request)
            return run.clients.send(request)

    heard, now = replace(run, engine=Listening(), evaluate_every=1000), None
    for number in range(rounds):
        asked.append([])
        now, _ = next(heard.rounds(1000, now, first=number))
    return asked


def queried(requests: list[Request]) -> bool:
    """Whether a model was sent to all for features."""
    return any(isinstance(request.work, Feature) for request in requests)


def test_with_a_period_the_models_go_to_all_in_rounds_one_of_every_so_many() -> None:
    asked = asked_in(CFLGP(2, period=3), rounds=8)
    assert [queried(requests) for requests in asked] == [n % 3 == 1 for n in range(8)]
    assert all(map(queried, asked_in(CFLGP(2), rounds=4)))


def query(
    method: CFLGP, before: CFLGPState, number: int, feature: Tensor, num_weights: int = 2
) -> CFLGPState:
    """The state after a round in which no model moves, and all answer with this feature."""
    size = len(before.labels)
    flow = method.round(before, context(range(size), size, num_weights, number=number))
    requested(flow)
    nothing = {"gradient": torch.zeros(size, num_weights), "num_examples": torch.ones(size).long()}
    flow.send(Replies(torch.arange(size), nothing))
    return answered(flow, range(size), feature=feature)


def test_features_are_running_means_model_by_model_unless_only_the_latest_counts() -> None:
    first, second, third = (torch.randn(4, 2, generator=torch.manual_seed(n)) for n in range(3))
    for beta in ("running-mean", "latest"):
        method = CFLGP(2, beta=beta)
        now = state()
        for number, feature in enumerate((first, second, third)):
            now = query(method, now, number, feature)
        expected = (first + third) / 2 if beta == "running-mean" else third
        torch.testing.assert_close(now.features[0], expected)
        torch.testing.assert_close(now.features[1], second)
        assert now.counts.tolist() == [[2, 1]] * 4


def test_the_clustering_stops_once_it_has_not_changed_for_a_tenth_of_the_rounds() -> None:
    method = CFLGP(2)
    feature = torch.tensor([[1.0, 0.0], [1.0, 0.5], [-1.0, 0.0], [-1.0, 0.5]])
    now = state()
    for number in range(12):
        assert not now.stopped
        now = query(method, now, number, feature)
        if now.stopped:
            break
    assert number == 10  # of 100 rounds; the first clusters, those of round 0, were right
    flow = method.round(now, context([0, 1, 2, 3], 4, 2, number=11))
    requested(flow)
    answered(flow, [0], gradient=[[0.0, 0.0]], num_examples=[1])  # and asks nothing more


def test_a_silent_client_keeps_its_cluster_and_joins_once_its_feature_is_complete() -> None:
    method = CFLGP(2)
    before = state(labels=torch.tensor([0, 0, 1, 0]))
    flow = method.round(before, context([0, 1, 2, 3], 4, 2))
    requested(flow)
    nothing = {"gradient": torch.zeros(1, 2), "num_examples": torch.ones(1).long()}
    flow.send(Replies(torch.tensor([0]), nothing))
    after = answered(flow, [0, 1, 2], feature=[[1.0, 0.0], [1.0, 0.5], [-1.0, 0.0]])
    assert after.labels.tolist() == [0, 0, 1, 0]
    assert after.counts[:, 0].tolist() == [1, 1, 1, 0]
    assert method.profile(after).isnan().any(1).tolist() == [False, False, False, True]
    # In the next round it answers, but not yet for the first model.
    likeness = torch.tensor([[1.0, 0.0], [1.0, 0.5], [-1.0, 0.0], [-1.0, 0.5]])
    after = query(method, after, 1, likeness)
    assert after.labels.tolist() == [0, 0, 1, 0]
    after = query(method, after, 2, likeness)
    assert after.labels.tolist() == [0, 0, 1, 1]
    assert not method.profile(after).isnan().any()


def test_who_was_not_clustered_before_that_ended_is_placed_as_newcomers_are() -> None:
    method = CFLGP(2)
    likeness = torch.tensor([[1.0, 0.0], [1.0, 0.5], [-1.0, 0.0], [0.0, 0.0]])
    ended = state(
        labels=torch.tensor([0, 0, 1, 0]),
        features=(likeness, likeness),
        counts=torch.tensor([[1, 1], [1, 1], [1, 1], [0, 1]]),
        anchors=torch.tensor([[3.0, 3.0], [4.0, 4.0]]),
        queries=2,
        stopped=True,
    )
    flow = method.round(ended, context(range(4), 4, 2, number=30))
    answers = [Replies(torch.tensor([3]), {"feature": torch.tensor([[-1.0, y]])}) for y in (0, 0.5)]
    first = next(flow)
    second, trained = (flow.send(answer) for answer in answers)
    for asked, anchor in zip((first, second), ended.anchors, strict=True):
        assert asked.clients.tolist() == [3]
        assert asked.optional
        assert torch.equal(asked.shared["theta"], anchor)
    assert trained.each["theta"].index.tolist() == [0, 0, 1, 1]  # it trains what it has joined
    columns = {"gradient": torch.zeros(4, 2), "num_examples": torch.ones(4).long()}
    with pytest.raises(StopIteration) as stopped:
        flow.send(Replies(torch.arange(4), columns))
    after = stopped.value.value
    assert after.labels.tolist() == [0, 0, 1, 1]
    assert after.last_change == 30
    assert [block[3].tolist() for block in after.features] == [[-1.0, 0.0], [-1.0, 0.5]]
    # It is asked no more than the others from then on.
    assert "gradient" not in next(method.round(after, context(range(4), 4, 2))).shared


def test_clustering_goes_on_until_a_fixed_round_and_not_beyond() -> None:
    """Line 5 of Algorithm 1: t < T_cl."""
    method = CFLGP(2, until_round=7, local=LocalTraining(lr=0.5))
    states = [state for state, _ in Run(method, blobs([20] * 6), mlp()).rounds(10)]
    assert [state.queries for state in states] == [1, 2, 3, 4, 5, 6, 7, 7, 7, 7]  # type: ignore[attr-defined]
    assert [state.stopped for state in states] == [False] * 7 + [True] * 3  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="until_round: 7 is not allowed with patience"):
        CFLGP(2, until_round=7, patience=3)
    with pytest.raises(UsageError, match="until_round: 1 is not above 1, to cluster at all"):
        CFLGP(2, until_round=1, period=2)


def test_features_are_of_some_coordinates_the_same_for_all() -> None:
    every = CFLGP(2).init(setup(10, 40))
    assert every.coordinates.tolist() == list(range(40))
    few = CFLGP(2, compression=10.0).init(setup(10, 40))
    assert len(few.coordinates) == 4
    assert [tuple(block.shape) for block in few.features] == [(10, 4)] * 2
    assert (
        few.coordinates.tolist()
        == CFLGP(2, compression=10.0).init(setup(10, 40)).coordinates.tolist()
    )
    net = mlp()
    of_the_last_layer = CFLGP(2, parameters=("3.*",)).init(
        replace(setup(10, 40), layout=net.layout)
    )
    assert len(of_the_last_layer.coordinates) == 3 * 8 + 3
    with pytest.raises(UsageError, match="pattern for any of w"):
        CFLGP(2, parameters=("trunk.*",)).init(setup(10, 40))


def test_clients_cut_off_decimals_where_told_to() -> None:
    flow = CFLGP(2, digits=2).round(state(), context([0], 4, 2))
    assert requested(flow).work == Quantised(Gradient(64), 2)


def test_with_one_cluster_it_is_one_model_and_clusters_nothing() -> None:
    run = Run(CFLGP(1), blobs([20] * 4), mlp())
    *_, (last, record) = run.rounds(4)
    assert isinstance(last, CFLGPState)
    assert last.labels.tolist() == [0, 0, 0, 0]
    assert record.measures["queries"] == 0
    # Nothing is ever written to its features.
    assert [tuple(block.shape) for block in last.features] == [(4, 1)]
    assert CFLGP(1).profile(last).isnan().all()


@pytest.mark.parametrize("beta", ["running-mean", "latest"])
@pytest.mark.parametrize("decay", [1.0, 0.7])
@pytest.mark.parametrize("period", [1, 2])
def test_with_quadratic_losses_a_newcomer_has_the_feature_of_a_client_like_it(
    period: int, decay: float, beta: Any
) -> None:
    generator = torch.manual_seed(0)
    x = torch.randn(6, 20, 3, generator=generator)
    y = x.sum(2) * torch.tensor([1.0, -1.0]).repeat(3)[:, None]
    clients = list(zip(x.numpy(), y.numpy(), strict=True))
    federation = Federation.from_arrays(clients, test_fraction=0.2)
    net = Net(lambda: torch.nn.Linear(3, 1), REGRESSION)
    local = LocalTraining(lr=0.1, lr_decay=decay, steps=1, batch_size="all")
    method = CFLGP(2, send="update", local=local, beta=beta, patience=50, period=period)
    run = Run(method, federation, net)
    *_, (last, _) = run.rounds(9)

    assert isinstance(last, CFLGPState)
    found = run.assign(last, 9)

    features = torch.cat(last.features, dim=1).double()
    centres = torch.stack([features[last.labels == k].mean(0) for k in range(2)])
    torch.testing.assert_close(found.scores, torch.cdist(features, centres), rtol=1e-4, atol=1e-6)
    assert found.scores.argmin(1).tolist() == last.labels.tolist()


@pytest.fixture(autouse=True)
def small_products_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_products, "KEPT_FROM", 1)


def wide(products: bool) -> CFLGPState:
    """Four clients whose features have so many values that inner products are kept, or are not."""
    now = state(
        models=torch.zeros(2, 64),
        features=(torch.zeros(4, 64), torch.zeros(4, 64)),
        coordinates=torch.arange(64),
        anchors=torch.zeros(2, 64),
    )
    return (
        replace(now, products=torch.stack([*map(inner_products, now.features)]))
        if products
        else now
    )


def test_kept_inner_products_are_those_of_the_features_and_change_nothing() -> None:
    method, (kept, fresh) = CFLGP(2), (wide(True), wide(False))
    assert kept.products.shape == (2, 4, 4)
    assert not fresh.products.numel()
    for number in range(4):
        feature = torch.randn(4, 64, generator=torch.manual_seed(number))
        kept, fresh = (
            query(method, before, number, feature, num_weights=64) for before in (kept, fresh)
        )
        for block, found in zip(kept.features, kept.products, strict=True):
            whole = block.double().numpy()
            torch.testing.assert_close(found, torch.from_numpy(whole @ whole.T))
        assert torch.equal(kept.products, torch.stack([*map(inner_products, kept.features)]))
        assert torch.equal(kept.labels, fresh.labels)
        values = (method.evidence(each, torch.arange)["singular_values"] for each in (kept, fresh))
        torch.testing.assert_close(*values)


def test_evidence_has_all_columns_that_clients_are_clustered_by() -> None:
    method = CFLGP(num_clusters=25)
    before = method.init(setup(40, 64))
    rows = torch.randn(40, 64, generator=torch.manual_seed(0))
    shown = method.evidence(
        replace(before, features=(rows, *before.features[1:]), counts=before.counts + 1),
        torch.arange,
    )
    assert shown["features"].shape == (40, 25)
    assert shown["singular_values"].shape == (20,)


def test_a_client_whose_features_are_far_too_large_gets_no_cluster_to_itself() -> None:
    class Liar:
        def __init__(self, engine: Engine) -> None:
            self.engine = engine

        def send(self, request: Request) -> Replies:
            replies = self.engine.send(request)
            for name in {"feature", "gradient"} & replies.columns.keys():
                replies.columns[name][replies.clients == 3] *= 1000
            return replies

    method = CFLGP(num_clusters=2, gradient=Gradient("all"), local=LocalTraining(lr=0.1))
    run = Run(method, blobs((30,) * 12), mlp(), limits=Limits(max_norm_ratio=3.0))
    *_, (_, record) = replace(run, engine=Liar(run.clients)).rounds(10)
    assert record.ari == 1.0
    assert "shortened to" in record.bounded[3]


def test_the_first_clusters_may_be_given() -> None:
    given = CFLGP(2, clusters=(1, 0, 0, 0, 0, 1))
    assert given.init(setup(6)).labels.tolist() == [1, 0, 0, 0, 0, 1]
    assert CFLGP(2).init(setup(6)).labels.sort().values.tolist() == [0, 0, 0, 1, 1, 1]
    with pytest.raises(UsageError, match=r"^clusters: \(0, 2\) is not numbers of 0 to 1"):
        CFLGP(2, clusters=(0, 2))
    with pytest.raises(UsageError, match="'3 numbers' is not the cluster of each of the 6 clients"):
        next(Run(CFLGP(2, clusters=(0, 1, 1)), blobs(), mlp()).rounds(1))
