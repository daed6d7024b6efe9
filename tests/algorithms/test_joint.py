"""The joint method: hand-worked rounds, and what its conventions are for."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch

from tests.federations import answered, blobs, context, mlp, requested, setup
from umbel.algorithms import Joint
from umbel.algorithms.joint import JointState
from umbel.client.work import ChooseJointly, JointScore, LocalTraining
from umbel.result.run import Run
from umbel.server.aggregation import Averaging


def state() -> JointState:
    models = torch.tensor([[1.0], [2.0], [3.0]])
    labels, unknown = torch.tensor([0, 1, 2, 0]), torch.full((4, 3), math.nan).double()
    return JointState(
        models,
        labels,
        torch.zeros_like(models),
        False,
        unknown,
        torch.zeros(3).long(),
        torch.zeros(0).long(),
    )


def test_clients_that_chose_a_model_move_it_by_their_mean_update() -> None:
    flow = Joint(3).round(state(), context([0, 1, 2, 3], 4, number=1))
    request = requested(flow)
    assert request.work == ChooseJointly(JointScore(LocalTraining(steps=1)))
    assert [int(request.sent_to(n)["given"]) for n in range(4)] == [-1] * 4
    after = answered(
        flow,
        [0, 2, 3],
        update=[[1.0], [3.0], [-1.0]],
        num_examples=[9, 1, 9],
        chosen=[1, 1, 2],
        scores=[[0.0, 1.0, 0.0]] * 3,
    )
    assert after.models.tolist() == [[1.0], [4.0], [2.0]]
    assert after.moves.tolist() == [[0.0], [2.0], [-1.0]]
    assert after.labels.tolist() == [1, 1, 1, 2]
    assert after.some_empty


def test_what_is_shared_is_no_move_of_an_empty_cluster() -> None:
    method = Joint(3, averaging=Averaging("equal", shared=("w",)))
    flow = method.round(state(), context([0, 2], 4, number=1))
    requested(flow)
    after = answered(
        flow,
        [0, 2],
        update=[[1.0], [3.0]],
        num_examples=[1, 1],
        chosen=[1, 1],
        scores=[[0.0, 1.0, 0.0]] * 2,
    )
    assert after.models.tolist() == [[3.0], [4.0], [5.0]]
    assert after.moves.tolist() == [[0.0], [2.0], [0.0]]


def test_the_first_identities_are_random_and_are_what_a_client_never_asked_has() -> None:
    start = setup(400, seed=7)
    first = Joint(4).init(start)
    assert torch.bincount(first.labels).min() > 60
    flow = Joint(4).round(first, context([3, 8], 400))
    request = requested(flow)
    assert [int(request.sent_to(n)["given"]) for n in range(2)] == first.labels[[3, 8]].tolist()


def test_every_cluster_has_a_client_in_every_round() -> None:
    """II-C: "each cluster has one device that will not change its cluster"."""
    method = Joint(4, LocalTraining(steps=1, batch_size=8))
    run = Run(method, blobs([16] * 12, num_groups=2), mlp(), seed=0)
    for state, _ in run.rounds(8):
        assert isinstance(state, JointState)
        assert len(torch.unique(state.labels)) == 4
        assert state.labels[state.pinned].tolist() == [0, 1, 2, 3]
        assert not state.some_empty
    often = replace(run, algorithm=replace(method, repair="when-empty"))
    assert min(len(torch.unique(state.labels)) for state, _ in often.rounds(8)) < 4


def test_a_pinned_client_keeps_its_cluster_and_an_absent_one_is_stood_in_for() -> None:
    before = replace(state(), labels=torch.tensor([1, 1, 2, 0]), pinned=torch.tensor([3, 1, 2]))
    flow = Joint(3).round(before, context([0, 1, 3], 4, number=2))
    assert requested(flow).each["given"].take(torch.arange(3)).tolist() == [-1, 1, 0]
    idle = replace(before, some_empty=True, idle=torch.tensor([0, 0, 4]))
    flow = Joint(3).round(idle, context([0, 1, 3], 4, number=2))
    assert requested(flow).each["given"].take(torch.arange(3)).tolist() == [2, 1, 0]


@pytest.mark.parametrize(
    ("repair", "empty", "given"),
    [
        ("when-empty", True, 3),
        ("when-empty", False, 0),
        ("always", False, 3),
        ("never", True, 0),
    ],
)
def test_after_an_empty_cluster_each_cluster_is_given_a_client(
    repair: str, empty: bool, given: int
) -> None:
    method = Joint(3, repair=repair)  # type: ignore[arg-type]
    before = replace(state(), some_empty=empty)
    request = requested(method.round(before, context([0, 1, 2, 3], 4, number=2)))
    identities = [int(request.sent_to(n)["given"]) for n in range(4)]
    assert sorted(k for k in identities if k >= 0) == list(range(given))


def test_a_cluster_is_not_empty_because_its_clients_were_not_asked() -> None:
    flow = Joint(3).round(state(), context([0], 4, number=1))
    requested(flow)
    columns = {"num_examples": [9], "chosen": [0], "scores": [[1.0, 0.0, 0.0]]}
    after = answered(flow, [0], update=[[1.0]], **columns)
    assert not after.some_empty
    assert after.idle.tolist() == [0, 1, 1]
    # As many have answered as there are, and nobody was in cluster 2.
    flow = Joint(3).round(replace(after, idle=torch.tensor([0, 0, 3])), context([0], 4, number=2))
    requested(flow)
    assert answered(flow, [0], update=[[1.0]], **columns).some_empty


def test_a_cluster_that_nobody_chooses_is_idle_for_each_client_that_answered() -> None:
    flow = Joint(3).round(state(), context([0, 1], 4, number=1))
    requested(flow)
    scores = [[1.0, 0.0, 0.0]] * 2
    after = answered(
        flow, [0, 1], update=[[1.0]] * 2, num_examples=[9, 9], chosen=[0, 0], scores=scores
    )
    assert after.idle.tolist() == [0, 2, 2]


def test_of_a_part_of_the_clients_each_gets_an_empty_cluster_or_decides() -> None:
    one = replace(state(), labels=torch.tensor([0, 1, 1, 0]), some_empty=True)
    empty, nobody = torch.ones(4, 1), torch.zeros(4, dtype=torch.long)
    three = replace(one, models=empty, moves=empty, labels=one.labels * 0, idle=nobody)
    seen = set()
    for number in range(1, 9):
        request = requested(Joint(3).round(one, context([2, 3], 4, number=number)))
        identities = request.each["given"].take(torch.arange(2)).tolist()
        assert sorted(identities) == [-1, 2]
        request = requested(Joint(4).round(three, context([2, 3], 4, number=number)))
        seen |= {*request.each["given"].take(torch.arange(2)).tolist()}
    assert seen == {1, 2, 3}


def test_small_cohorts_train_every_model_and_most_clients_decide() -> None:
    num_clusters, cohort = 4, 3
    method = Joint(num_clusters, LocalTraining(steps=5, lr=0.2, batch_size=8))
    run = Run(method, blobs([16] * 12, num_groups=3), mlp(), participation=cohort / 12, seed=1)
    first, given = run.start(40), []
    state: Any = first
    for number in range(40):
        flow = method.round(state, run.context(number, 40))
        request = requested(flow)
        if number:
            stays = torch.isin(request.clients, state.pinned)
            given += request.each["given"].take(torch.nonzero(~stays)[:, 0]).tolist()
        reply = run.clients.send(request)
        state = answered(flow, reply.clients.tolist(), **reply.columns)
    assert sum(identity < 0 for identity in given) > 0.7 * len(given)
    assert (state.models - first.models).norm(dim=1).min() > 0.5


def purity(method: Joint, rounds: int = 30) -> float:
    federation = blobs([60] * 16, num_groups=4, num_classes=4)
    run = Run(method, federation, mlp(num_outputs=4), seed=2, evaluate_every=rounds)
    *_, (_, record) = run.rounds(rounds)
    assert record.purity is not None
    return record.purity


def test_taken_literally_equation_3_prefers_the_wrong_model() -> None:
    local = LocalTraining(steps=1, batch_size=32, lr=0.1)
    right = Joint(4, local=local, lam=0.5)
    assert purity(right) > 0.9
    assert purity(replace(right, sign="literal")) < 0.9


def test_with_lambda_zero_only_the_loss_counts() -> None:
    local = LocalTraining(steps=1, batch_size=32)
    run = Run(Joint(2, local=local, lam=0.0), blobs([60] * 8), mlp(), seed=2)
    other = replace(run, algorithm=Joint(2, local=local, lam=0.0, similarity="euclidean"))
    for (a, _), (b, _) in zip(run.rounds(4), other.rounds(4), strict=True):
        torch.testing.assert_close(a.models, b.models)
