"""Sums over clusters, made block by block on the way, are the sums of all rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.federations import blobs, each_its_own, mlp
from umbel.algorithms import IFCA
from umbel.client.work import LocalTraining
from umbel.engines import Sequential
from umbel.engines.metering import Metered
from umbel.engines.replies import guarded as wrappers
from umbel.engines.replies.guarded import Guarded, QuorumError
from umbel.engines.replies.validation import Limits
from umbel.flow import Replies, Request, Rows, drive
from umbel.reduction import MANY, Reduction, cluster_sums
from umbel.result.run import Run
from umbel.server.aggregation import Averaging
from umbel.server.ask import train_best, train_best_summed

ROWS = torch.tensor([[1.0, 10.0], [3.0, 30.0], [5.0, 50.0]])
LABELS = torch.tensor([0, 2, 0])


def asked(reduction: Reduction | None) -> Request:
    net = mlp()
    theta = each_its_own(torch.stack([net.new(seed) for seed in range(6)]))
    return Request(
        LocalTraining(batch_size=4),
        torch.arange(6),
        range(6),
        each={"theta": theta},
        reduction=reduction,
    )


@pytest.fixture(params=[1, 2, 100])
def rows_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    rows = int(request.param)
    monkeypatch.setattr(wrappers, "BLOCK_BYTES", rows * 8 * mlp().layout.num_values)
    return rows


class Watched:
    """Notes how many clients were asked at once, and answers in reverse order."""

    def __init__(self) -> None:
        self.engine = Sequential(mlp(), blobs())
        self.most = self.asked = 0

    def send(self, request: Request) -> Replies:
        self.most = max(self.most, len(request.clients))
        self.asked += len(request.clients)
        replies = self.engine.send(request)
        return replies.pick(torch.arange(len(replies.clients)).flip(0))


def test_the_weighted_sums_of_clusters() -> None:
    sums = cluster_sums(ROWS, LABELS, torch.tensor([1, 7, 3]), 4)
    assert sums.values.tolist() == [[16.0, 160.0], [0.0, 0.0], [21.0, 210.0], [0.0, 0.0]]
    assert sums.weights.tolist() == [4.0, 0.0, 7.0, 0.0]
    assert sums.means().tolist() == [[4.0, 40.0], [0.0, 0.0], [3.0, 30.0], [0.0, 0.0]]


def test_many_clusters_are_summed_alike() -> None:
    few, many = (cluster_sums(ROWS, LABELS, torch.tensor([1, 7, 3]), k) for k in (3, MANY + 1))
    assert torch.equal(many.values[:3], few.values)
    assert torch.equal(many.weights[:3], few.weights)


@pytest.mark.parametrize("clusters", [1, MANY + 1])
def test_half_precision_holds_means_though_not_sums(clusters: int) -> None:
    rows = torch.tensor([[1.0], [3.0], [2.0]]).half()
    sums = cluster_sums(rows, torch.zeros(3, dtype=torch.long), torch.full((3,), 70_000), clusters)
    means = (sums + sums).means()
    assert means.dtype == torch.half
    assert means[0].item() == 2


def test_no_more_rows_are_held_than_fit_and_the_sums_are_the_same(rows_at_once: int) -> None:
    engine = Watched()
    reduction = Reduction(2, torch.tensor([0, 1, 0, 1, 1, 0]))
    replies = Guarded(engine, Limits()).send(asked(reduction))
    assert engine.most == min(max(rows_at_once, 2), 6)  # so that two can work at once
    assert replies.sums is not None
    assert set(replies.columns) == {"num_examples"}
    assert replies.clients.tolist() == list(range(6))
    whole, _ = reduction.of(torch.arange(6), engine.engine.send(asked(None)).columns)
    torch.testing.assert_close(replies.sums.values, whole.values, rtol=1e-5, atol=1e-4)
    assert torch.equal(replies.sums.weights, whole.weights)


def test_a_refused_row_is_in_no_sum_and_the_quorum_counts_all_blocks(rows_at_once: int) -> None:
    class Poisoning(Watched):
        def send(self, request: Request) -> Replies:
            replies = super().send(request)
            replies.columns["update"][replies.clients < poisoned] = torch.nan
            return replies

    reduction = Reduction(1, torch.zeros(6, dtype=torch.long), weights=None)
    poisoned = 2
    guard = Guarded(Poisoning(), Limits())
    replies = guard.send(asked(reduction))
    assert replies.sums is not None
    assert replies.sums.weights.tolist() == [4.0]
    assert replies.sums.values.isfinite().all()
    assert set(guard.take()[1]) == {0, 1}
    poisoned = 4
    with pytest.raises(QuorumError, match="2 of 6 clients gave a usable reply"):
        guard.send(asked(reduction))
    assert rows_at_once > 0


class Lying(Watched):
    """The first two clients, who are in one block, step far and claim very many examples."""

    def send(self, request: Request) -> Replies:
        replies = super().send(request)
        replies.columns["update"][replies.clients < 2] = 100.0
        replies.columns["num_examples"][replies.clients < 2] = 10**9
        return replies


@pytest.mark.parametrize(
    "limits", [Limits(max_norm_ratio=3.0), Limits(max_share=0.3)], ids=["steps", "shares"]
)
@pytest.mark.parametrize("labels", [[0] * 6, [0, 1, 0, 1, 1, 0]])
def test_bounds_are_relative_to_the_whole_cohort_however_small_blocks_are(
    limits: Limits, labels: list[int], rows_at_once: int
) -> None:
    whole = Guarded(Lying(), limits)
    clusters = torch.tensor(labels)
    theta = Rows(torch.stack([mlp().new(seed) for seed in range(2)]), clusters)
    rows = whole.send(replace(asked(None), each={"theta": theta})).in_order()
    bounded = whole.take()[2]
    assert {0, 1} <= bounded.keys()

    reduction = Reduction(2, clusters)
    expected, _ = reduction.of(rows.clients, rows.columns)
    engine = Lying()
    meter = Metered(engine, blobs().train)
    guard = Guarded(meter, limits)
    summed = guard.send(replace(asked(reduction), each={"theta": theta}))
    assert engine.most == min(max(rows_at_once, 2), 6)
    assert guard.take()[2] == bounded
    assert summed.sums is not None
    assert torch.equal(summed.sums.weights, expected.weights)
    torch.testing.assert_close(summed.sums.values, expected.values, rtol=1e-5, atol=1e-3)
    assert torch.equal(summed.columns["num_examples"], rows.columns["num_examples"])
    # What is computed twice is sent once.
    spent = meter.take()
    assert spent.bytes_down == 6 * mlp().layout.num_values * 4
    assert spent.bytes_up == 6 * (83 * 4 + 8)


def test_honest_clients_are_asked_once(rows_at_once: int) -> None:
    engine = Watched()
    Guarded(engine, Limits(max_norm_ratio=1e3)).send(asked(Reduction(1, torch.zeros(6).long())))
    assert engine.asked == 6
    assert rows_at_once > 0


@pytest.mark.parametrize("name", ["FedAvg", "IFCA", "PerFedAvg"])
def test_a_round_in_blocks_is_the_round_at_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    import umbel.algorithms

    def last_state(rows: int) -> torch.Tensor:
        monkeypatch.setattr(wrappers, "BLOCK_BYTES", rows * 8 * net.layout.num_values)
        run = Run(getattr(umbel.algorithms, name)(), federation, net)
        states = [state for state, _ in run.rounds(3)]
        return torch.as_tensor(states[-1].models)

    federation, net = blobs(), mlp(dtype=torch.float64)
    torch.testing.assert_close(last_state(1), last_state(100), rtol=1e-12, atol=1e-12)


def test_who_trained_the_best_model_comes_as_rows_or_as_sums() -> None:
    net = mlp(dtype=torch.float64)
    run = Run(IFCA(num_clusters=2), blobs(), net)
    models, ctx = run.start(1).models, run.context(0, 1)
    local = LocalTraining(epochs=1, batch_size=8)
    averaging = Averaging()
    rows = drive(train_best(models, ctx, local), run.clients)
    summed = drive(train_best_summed(models, ctx, local, averaging.reduction(2)), run.clients)
    assert rows.update.shape == (len(ctx.cohort), net.layout.num_values)
    assert torch.equal(rows.chosen, summed.chosen)
    assert torch.equal(rows.chosen, rows.losses.argmin(1))
    step = averaging.step(rows.update, rows.chosen, rows.num_examples, 2, ctx.layout)
    torch.testing.assert_close(step, averaging.step_of(summed.sums, ctx.layout))
