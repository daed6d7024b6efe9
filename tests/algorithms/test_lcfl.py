"""LCFL: its distances, hand-worked rounds, and clients that come late."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
import torch

from tests.federations import answered, blobs, context, mlp, requested, setup
from umbel.algorithms import LCFL, FedAvg
from umbel.algorithms.lcfl import LCFLState
from umbel.checks import UsageError
from umbel.client.work import LocalTraining, MeanLoss
from umbel.engines.replies.faults import Faults
from umbel.engines.replies.validation import Limits
from umbel.flow import Replies
from umbel.result.run import Run
from umbel.server.clusterers import DBSCAN, HDBSCAN, Agglomerative, Clusterer, KMedoids
from umbel.server.clustering import loss_distance

CROSS = torch.tensor([[1.0, 2.0, 7.0], [3.0, 1.5, 6.0], [9.0, 8.0, 2.0]], dtype=torch.double)


def test_distances_are_those_of_equation_2_and_of_equation_6() -> None:
    own = CROSS.diagonal()
    by_hand = torch.zeros(3, 3, dtype=torch.double)
    gap = torch.zeros(3, 3, dtype=torch.double)
    for i in range(3):
        for j in range(3):
            by_hand[i, j] = abs(CROSS[i, j] - CROSS[i, i]) + abs(CROSS[j, i] - CROSS[j, j])
            gap[i, j] = abs(CROSS[i, i] - CROSS[j, i]) + abs(CROSS[i, j] - CROSS[j, j])
    assert by_hand[0, 1] == 2.5
    torch.testing.assert_close(loss_distance("loss", CROSS, own, own, CROSS), by_hand)
    torch.testing.assert_close(loss_distance("loss-gap", CROSS, own, own, CROSS), gap)


def test_without_the_medoids_half_of_the_distance_is_left() -> None:
    own, theirs = torch.tensor([1.0]).double(), torch.tensor([[3.0, 0.5]]).double()
    medoid_own = torch.tensor([2.0, 2.0]).double()
    half = loss_distance("loss", theirs, own, medoid_own, None)
    assert half.tolist() == [[2.0, 0.5]]
    half = loss_distance("loss-gap", theirs, own, medoid_own, None)
    assert half.tolist() == [[1.0, 1.5]]


def clustered() -> LCFLState:
    """After the first round of four clients, of which 0 and 2 belong together, and 1 and 3."""
    method = LCFL(clusterer=KMedoids(2))
    flow = method.round(method.init(setup(4)), context([0, 1, 2, 3], 4))
    assert requested(flow).work == method.local.at_round(0)
    counts = torch.tensor([1, 2, 3, 2])
    update = torch.tensor([[1.0], [-2.0], [5.0], [-6.0]])
    asked = flow.send(Replies(torch.arange(4), {"update": update, "num_examples": counts}))
    assert asked.work == MeanLoss()
    assert asked.shared["models"].tolist() == [[1.0], [-2.0], [5.0], [-6.0]]
    alike = [[0.1, 3.0, 0.2, 3.0], [3.0, 0.1, 3.0, 0.2], [0.2, 3.0, 0.1, 3.0], [3.0, 0.2, 3.0, 0.1]]
    after = answered(flow, [0, 1, 2, 3], losses=torch.tensor(alike, dtype=torch.double))
    assert isinstance(after, LCFLState)
    return after


def test_clusters_start_from_the_mean_of_their_members_models() -> None:
    state = clustered()
    first, second = int(state.labels[0]), int(state.labels[1])
    assert state.labels.tolist() == [first, second, first, second]
    assert state.models[first].tolist() == [(1 * 1.0 + 3 * 5.0) / 4]
    assert state.models[second].tolist() == [-4.0]
    assert state.assigned.all()
    assert set(state.medoids[[first]].tolist()) <= {0, 2}
    assert state.evidence[first].item() in (1.0, 5.0)
    assert state.medoid_loss.tolist() == [0.1, 0.1]


def test_a_client_that_did_not_move_is_at_no_distance_from_itself() -> None:
    updates = torch.tensor([[0.0, 0.0], [1.0, 0.2], [-1.0, 0.0]])
    method = LCFL(metric="update", clusterer=DBSCAN(eps=0.5, min_samples=1))
    flow = method.round(method.init(setup(3, 2)), context([0, 1, 2], 3, 2))
    requested(flow)
    columns = {"update": updates, "num_examples": torch.ones(3).long()}
    with pytest.raises(StopIteration) as ended:
        flow.send(Replies(torch.arange(3), columns))
    after = ended.value.value
    assert after.distance.diagonal().tolist() == [0, 0, 0]
    assert len(set(after.labels.tolist())) == 3


def test_after_a_federated_warm_up_clusters_start_from_the_global_model() -> None:
    method = LCFL(warm_up="federated", warm_up_rounds=3, local=LocalTraining(batch_size=8))
    run = Run(method, blobs([20] * 6), mlp(dtype=torch.float64), seed=1)
    fedavg = Run(FedAvg(LocalTraining(batch_size=8)), blobs([20] * 6), run.net, seed=1)
    before = torch.zeros(0)
    both = zip(run.rounds(3), fedavg.rounds(3), strict=True)
    for number, ((mine, _), (theirs, _)) in enumerate(both):
        assert isinstance(mine, LCFLState)
        assert mine.clustered == (number == 2)
        for model in mine.models:
            torch.testing.assert_close(model, theirs.models[0])
        if mine.clustered:  # who comes late warms up from where the others did
            torch.testing.assert_close(mine.origin, before)
        before = theirs.models
    assert len(mine.models) == 2


def test_clients_may_warm_up_differently_than_they_train() -> None:
    alone = LocalTraining(steps=7, lr=0.3)
    method = LCFL(warm_up_training=alone)
    flow = method.round(method.init(setup(2)), context([0], 2))
    request = requested(flow)
    assert request.work == alone
    assert request.clients.tolist() == [0, 1]  # everyone, whatever the cohort


def test_own_starts_differ_and_common_ones_do_not() -> None:
    own = LCFL(start="own").init(setup(3))
    assert own.models.tolist() == [[0.0], [10.0], [20.0]]
    assert own.labels.tolist() == [0, 1, 2]
    assert LCFL().init(setup(3)).models.tolist() == [[0.0]]
    with pytest.raises(UsageError, match="start: 'own' is not \"common\""):
        LCFL(start="own", metric="gradient")


def test_latecomers_start_from_models_of_their_own_and_newcomers_from_the_first() -> None:
    method = LCFL(metric="parameters", start="own")
    flow = method.round(method.init(setup(6)), context([0], 6))
    assert requested(flow).sent_to(4)["theta"].tolist() == [40.0]
    three = {"update": [[0.0]] * 3, "num_examples": [1] * 3}
    state = answered(flow, [0, 2, 4], **three)  # 1, 3 and 5 are not there
    assert isinstance(state, LCFLState)
    flow = method.round(state, context([0, 3, 5], 6, number=1))
    request = requested(flow)
    assert request.clients.tolist() == [3, 5]
    assert [request.sent_to(n)["theta"].tolist() for n in range(2)] == [[30.0], [50.0]]
    columns = {"update": torch.zeros(1, 1), "num_examples": torch.tensor([1])}
    flow.send(Replies(torch.tensor([3]), columns))
    after = answered(flow, [0, 3, 5], **three)
    assert after.assigned.tolist() == [True, False, True, True, True, False]
    request = requested(method.round(after, context([1, 2, 5], 6, number=2)))
    assert [request.sent_to(n)["theta"].tolist() for n in range(2)] == [[10.0], [50.0]]
    newcomers = requested(method.assign(after, context([0, 1], 2, number=2)))
    assert [newcomers.sent_to(n)["theta"].tolist() for n in range(2)] == [[0.0], [0.0]]


def test_a_client_that_missed_the_clustering_joins_the_nearest_medoid_when_it_comes() -> None:
    before = clustered()
    first, second = int(before.labels[0]), int(before.labels[1])
    late = replace(
        before,
        labels=before.labels.index_fill(0, torch.tensor([3]), first),
        assigned=torch.tensor([True, True, True, False]),
    )
    flow = LCFL(clusterer=KMedoids(2)).round(late, context([2, 3], 4, number=5))
    warm = requested(flow)
    assert warm.clients.tolist() == [3]
    assert warm.optional
    assert warm.sent_to(0)["theta"].tolist() == [0.0]
    three = torch.tensor([3])
    update = {"update": torch.tensor([[-7.0]]), "num_examples": torch.tensor([4])}
    own = flow.send(Replies(three, update))
    assert own.sent_to(0)["models"].tolist() == [[-7.0]]
    theirs = flow.send(Replies(three, {"losses": torch.tensor([[0.1]]).double()}))
    assert theirs.shared["models"].tolist() == late.evidence.tolist()
    losses = torch.tensor([[0.0, 0.0]]).double()
    losses[0, first], losses[0, second] = 3.0, 0.2
    back = flow.send(Replies(three, {"losses": losses}))
    assert back.clients.tolist() == sorted(late.medoids.tolist())
    assert back.shared["models"].tolist() == [[-7.0], *late.evidence.tolist()]
    returned = torch.zeros(2, 3).double()  # the new model, and those of both medoids, on each
    returned[first], returned[second] = torch.tensor([[3.0, 9.0, 9.0], [0.2, 9.0, 9.0]]).double()
    returned[[0, 1], [1, 2]] = 0.1
    # In order of client numbers.
    returned = returned[late.medoids.argsort()]
    train = flow.send(Replies(back.clients, {"losses": returned}))
    assert train.clients.tolist() == [2, 3]
    after = answered(flow, [2], update=[[0.0]], num_examples=[3])
    assert after.labels.tolist() == [first, second, first, second]
    assert after.assigned.all()


@pytest.mark.parametrize("metric", ["loss", "update"])
@pytest.mark.parametrize("clusterer", [KMedoids(3), Agglomerative(num_clusters=3)])
def test_where_fewer_answer_than_there_are_clusters_the_next_round_tries_again(
    metric: str, clusterer: Clusterer
) -> None:
    method = LCFL(metric=metric, clusterer=clusterer)  # type: ignore[arg-type]
    faults, limits = Faults(drop=0.7), Limits(quorum=0.0)
    run = Run(method, blobs([12] * 5), mlp(), seed=1, faults=faults, limits=limits)
    clustered = []
    for state, record in run.rounds(12):
        assert isinstance(state, LCFLState)
        clustered.append(state.clustered)
        if len(record.missing) > 2 and not any(clustered[:-1]):
            assert not state.clustered
    assert clustered == sorted(clustered)
    assert clustered[0] < clustered[-1]
    assert len(state.models) == 3


@pytest.mark.parametrize("metric", ["loss", "update"])
@pytest.mark.parametrize("clusterer", [Agglomerative(num_clusters=2), DBSCAN(0.5), HDBSCAN()])
def test_any_clustering_of_distances_will_do(
    clusterer: Clusterer, metric: Literal["loss", "update"]
) -> None:
    local = LocalTraining(batch_size=8)
    method = LCFL(clusterer=clusterer, metric=metric, local=local)
    *_, (_, record) = Run(method, blobs([40] * 10), mlp()).rounds(2)
    assert record.ari == 1.0
    assert record.num_clusters == 2


@pytest.mark.parametrize("metric", ["loss", "loss-gap", "update"])
def test_a_sample_may_be_clustered_first_and_the_rest_join_it(metric: str) -> None:
    sizes = [40] * 12
    local = LocalTraining(epochs=5, batch_size=8)
    method = LCFL(local, metric=metric, compared=5)  # type: ignore[arg-type]
    run = Run(method, blobs(sizes), mlp(), seed=1)
    records = [record for _, record in run.rounds(3)]
    assert records[-1].ari == 1.0
    *_, (state, _) = run.rounds(1)
    assert isinstance(state, LCFLState)
    assert int(state.assigned.sum()) == 5
    if metric == "update":
        return  # nobody gets another's model anyhow
    full = [record for _, record in replace(run, algorithm=LCFL(local, metric=metric)).rounds(3)]  # type: ignore[arg-type]
    assert sum(r.bytes_down for r in records) < sum(r.bytes_down for r in full)
