"""FL+HC: rounds worked by hand, before, at and after the clustering."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch

from tests.federations import answered, context, requested, setup
from umbel.algorithms import FLHC
from umbel.algorithms.base import Known
from umbel.algorithms.flhc import FLHCState
from umbel.checks import UsageError
from umbel.client.work import LocalTraining
from umbel.flow import Replies

ALGORITHM = FLHC(num_clusters=2, cluster_round=2)


def start(num_clients: int, algorithm: FLHC = ALGORITHM) -> FLHCState:
    ones = torch.ones(2)
    known = replace(setup(num_clients, 2), participation=0.5, new_model=lambda _: ones)
    return algorithm.init(known)


def play(
    algorithm: FLHC,
    state: FLHCState,
    number: int,
    clients: Sequence[int],
    update: Sequence[Sequence[float]],
) -> FLHCState:
    """One round in which these clients are the cohort, and answer with these updates."""
    flow = algorithm.round(state, context(clients, len(state.labels), 2, number))
    requested(flow)
    return answered(flow, clients, update=update, num_examples=[1] * len(clients))


def clustered() -> FLHCState:
    """After the clustering round, in which client 4 did not answer."""
    update = [[4.0, 0.0], [0.0, 1.0], [2.0, 0.0], [3.0, 0.3]]
    return play(ALGORITHM, start(5), 2, [0, 1, 2, 3], update)


def test_until_the_clustering_it_is_fedavg() -> None:
    after = play(ALGORITHM, start(4), 1, [0, 3], [[4.0, 0.0], [0.0, 2.0]])
    assert after.models.tolist() == [[3.0, 2.0]]
    assert after.labels.tolist() == [0, 0, 0, 0]


def test_the_clustering_round_asks_everyone_and_moves_no_model() -> None:
    flow = ALGORITHM.round(start(5), context([1], 5, 2, number=2))
    request = requested(flow)
    assert request.clients.tolist() == [0, 1, 2, 3, 4]
    assert request.work == LocalTraining()
    after = clustered()
    assert after.models.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    crowd, single = after.labels[:2].tolist()
    assert {crowd, single} == {0, 1}
    # Client 4, which did not answer, is served with the most.
    assert after.labels.tolist() == [crowd, single, crowd, crowd, crowd]
    assert after.placed.tolist() == [True, True, True, True, False]
    torch.testing.assert_close(after.means[crowd], torch.tensor([3.0, 0.1]))


def test_newcomers_are_compared_with_plain_means_of_updates() -> None:
    flow = ALGORITHM.round(start(3), context([0], 3, 2, number=2))
    requested(flow)
    update = [[4.0, 0.0], [0.0, 1.0], [2.0, 0.0]]
    after = answered(flow, [0, 1, 2], update=update, num_examples=[9, 1, 1])
    torch.testing.assert_close(after.means[after.labels[0]], torch.tensor([3.0, 0.0]))


def test_each_cluster_then_federates_by_itself() -> None:
    state = clustered()
    after = play(ALGORITHM, state, 3, [0, 1, 2], [[4.0, 0.0], [7.0, 7.0], [0.0, 2.0]])
    assert after.models[state.labels[0]].tolist() == [3.0, 2.0]
    assert after.models[state.labels[1]].tolist() == [8.0, 8.0]


def test_a_client_that_missed_the_clustering_is_placed_when_it_first_answers() -> None:
    state = clustered()
    state = replace(state, models=state.models + 10)  # the clusters have gone on
    flow = ALGORITHM.round(state, context([0, 4], 5, 2, number=7))
    late = requested(flow)
    assert late.optional
    assert late.clients.tolist() == [4]
    assert late.sent_to(0)["theta"].tolist() == [1.0, 1.0]
    request = flow.send(placed_by([[0.2, 5.0]]))
    assert request.clients.tolist() == [0]
    assert request.sent_to(0)["theta"].tolist() == [11.0, 11.0]
    after = answered(flow, [0], update=[[1.0, 0.0]], num_examples=[1])
    assert after.labels[4] == state.labels[1]  # its update points where client 1's pointed
    assert after.placed.all()
    # The update it was placed by belongs to the joint model: no cluster averages it.
    assert after.models[state.labels[0]].tolist() == [12.0, 11.0]
    assert after.models[state.labels[1]].tolist() == [11.0, 11.0]


def placed_by(update: list[list[float]]) -> Replies:
    """What client 4 answers when it is asked for an update of the joint model."""
    columns = {"update": torch.tensor(update), "num_examples": torch.tensor([1])}
    return Replies(torch.tensor([4]), columns)


def test_updates_are_compared_at_the_learning_rate_of_the_clustering_round() -> None:
    local = LocalTraining(lr=1.0, lr_decay=0.5)
    method = replace(ALGORITHM, metric="l2", local=local)
    then = replace(local, lr=0.25, lr_decay=1.0)
    # Nobody answered in round 2: round 3 clusters in its place.
    assert requested(method.round(start(5, method), context([0], 5, 2, number=3))).work == then
    flow = method.round(clustered(), context([0, 4], 5, 2, number=7))
    assert requested(flow).work == then
    assert flow.send(placed_by([[0.2, 5.0]])).work == local.at_round(7)
    newcomers = method.assign(clustered(), context([0], 1, 2, number=7))
    assert requested(newcomers).work == then


@pytest.mark.parametrize(("threshold", "found"), [(1.5, 3), (4.0, 2), (99.0, 1)])
def test_clusters_are_cut_at_a_distance(threshold: float, found: int) -> None:
    algorithm = FLHC(threshold=threshold, metric="l1", linkage="single", cluster_round=0)
    update = [[0.0, 0.0], [1.0, 0.0], [3.0, 0.5], [9.0, 0.0]]
    after = play(algorithm, start(4, algorithm), 0, range(4), update)
    assert len(after.models) == len(set(after.labels.tolist())) == found


def test_fewer_answers_than_clusters_are_a_cluster_each() -> None:
    algorithm = FLHC(num_clusters=3, cluster_round=0)
    after = play(algorithm, start(3), 0, [0, 2], [[1.0, 0.0], [0.0, 1.0]])
    assert len(after.models) == 2


def test_what_can_not_work_is_refused() -> None:
    with pytest.raises(UsageError, match="exactly one of the two"):
        FLHC(num_clusters=2, threshold=1.0)
    with pytest.raises(UsageError, match="exactly one of the two"):
        start(3, FLHC())
    with pytest.raises(UsageError, match="metric: 'cosine' is not \"l2\""):
        FLHC(num_clusters=2, linkage="ward")
    with pytest.raises(UsageError, match="cluster_round: -1"):
        FLHC(num_clusters=2, cluster_round=-1)
    with pytest.raises(UsageError, match="num_clusters: 2 is not at most"):
        FLHC(num_clusters=2).check(Known(1.0, num_clients=1))
