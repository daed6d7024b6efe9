"""PACFL: rounds worked by hand, with subspaces whose angles are known."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch import Tensor

from tests.federations import answered, context, setup
from umbel.algorithms import PACFL
from umbel.algorithms.base import Known
from umbel.algorithms.pacfl import PACFLState
from umbel.checks import UsageError
from umbel.client.work import LocalTraining, PrincipalVectors
from umbel.flow import Flow, Replies
from umbel.server.ask import Context

ALGORITHM = PACFL(threshold=20.0, num_vectors=1)


def start(num_clients: int, algorithm: PACFL = ALGORITHM) -> PACFLState:
    ones = torch.ones(1)
    known = replace(setup(num_clients), participation=0.5, new_model=lambda _: ones)
    return algorithm.init(known)


def at(cohort: Sequence[int], num_clients: int, number: int) -> Context:
    """A round among clients with plane data of three classes."""
    ctx = context(cohort, num_clients, number=number)
    return replace(ctx, input_shape=(2, 1), num_outputs=3)


def lines(degrees: Iterable[float]) -> Tensor:
    """(N, 2, 1) a line through the origin for each client."""
    rows = [[[math.cos(math.radians(d))], [math.sin(math.radians(d))]] for d in degrees]
    return torch.tensor(rows, dtype=torch.double)


def send(flow: Flow[PACFLState], clients: Sequence[int], degrees: Iterable[float]) -> None:
    """Answer with lines; the flow goes on to training."""
    flow.send(Replies(torch.tensor(clients), {"vectors": lines(degrees)}))


def clustered() -> PACFLState:
    """After round 0, in which client 4 sent nothing, and nobody's model moved."""
    flow = ALGORITHM.round(start(5), at([0], 5, 0))
    next(flow)
    send(flow, [0, 1, 2, 3], [0.0, 90.0, 10.0, 175.0])
    return answered(flow, [0], update=[[0.0]], num_examples=[1])


def test_everyone_is_clustered_before_the_first_training() -> None:
    flow = ALGORITHM.round(start(4), at([1, 2], 4, 0))
    request = next(flow)
    assert request.work == PrincipalVectors(1, 2)
    assert request.clients.tolist() == [0, 1, 2, 3]
    assert not request.shared
    assert not request.each
    send(flow, [0, 1, 2, 3], [0.0, 90.0, 10.0, 175.0])
    after = answered(flow, [1, 2], update=[[4.0], [-3.0]], num_examples=[1, 2])
    crowd, single = after.labels[:2].tolist()
    # 0, 10 and 175 degrees are neighbours: a line has no sign.
    assert after.labels.tolist() == [crowd, single, crowd, crowd]
    assert {crowd, single} == {0, 1}
    assert after.models[crowd].item() == -2.0
    assert after.models[single].item() == 5.0
    torch.testing.assert_close(
        after.bases @ after.bases.mT, lines([0, 90, 10, 175]) @ lines([0, 90, 10, 175]).mT
    )


def test_vectors_may_be_asked_for_by_class() -> None:
    algorithm = PACFL(threshold=20.0, num_vectors=2, per_class=True)
    request = next(algorithm.round(start(4), at([1, 2], 4, 0)))
    assert request.work == PrincipalVectors(2, 2, num_classes=3)


def test_a_client_that_sent_nothing_is_served_with_the_most_and_does_not_train() -> None:
    state = clustered()
    assert state.labels[4] == state.labels[0]
    assert state.placed.tolist() == [True, True, True, True, False]
    flow = ALGORITHM.round(state, at([1, 4], 5, 3))
    request = next(flow)
    assert request.clients.tolist() == [4]
    assert request.optional
    training = flow.send(Replies(torch.tensor([]).long(), {"vectors": lines([])}))
    assert training.work == LocalTraining()
    assert training.clients.tolist() == [1]
    after = answered(flow, [1], update=[[1.0]], num_examples=[1])
    assert after.models[state.labels[1]].item() == 2.0


def test_it_joins_the_cluster_whose_members_are_nearest_when_it_sends() -> None:
    state = clustered()
    flow = ALGORITHM.round(state, at([1, 4], 5, 3))
    next(flow)
    send(flow, [4], [65.0])  # 65, 55 and 70 from the crowd, 25 from client 1
    after = answered(flow, [1, 4], update=[[1.0], [3.0]], num_examples=[1, 1])
    assert after.labels[4] == state.labels[1]
    assert after.models[state.labels[1]].item() == 3.0  # it trains with them at once
    assert after.placed.all()
    torch.testing.assert_close(after.bases[4].abs(), lines([65.0])[0])


def test_clusters_are_cut_at_a_number_and_there_are_no_more_than_answers() -> None:
    algorithm = PACFL(num_clusters=3, num_vectors=1)
    flow = algorithm.round(start(4), at([0], 4, 0))
    next(flow)
    send(flow, [0, 3], [0.0, 1.0])
    assert len(answered(flow, [0], update=[[0.0]], num_examples=[1]).models) == 2


def test_what_can_not_work_is_refused() -> None:
    with pytest.raises(UsageError, match="exactly one of the two"):
        PACFL(num_clusters=2, threshold=1.0)
    with pytest.raises(UsageError, match="exactly one of the two"):
        start(3, PACFL())
    with pytest.raises(UsageError, match="num_vectors: 0 is not 1 or more"):
        PACFL(threshold=1.0, num_vectors=0)
    with pytest.raises(UsageError, match="threshold: 0 is not more than 0"):
        PACFL(threshold=0)
    with pytest.raises(UsageError, match="num_clusters: 3 is not at most"):
        PACFL(num_clusters=3).check(Known(1.0, num_clients=2))


@pytest.mark.parametrize("angle", ["smallest", "sum"])
def test_subspaces_that_are_the_whole_space_of_inputs_are_reported(
    angle: Literal["smallest", "sum"], caplog: pytest.LogCaptureFixture
) -> None:
    algorithm = PACFL(num_clusters=2, angle=angle)
    flow = algorithm.round(start(8, algorithm), replace(at([0], 8, 0), input_shape=(2,)))
    next(flow)
    vectors = torch.randn(8, 2, 2, generator=torch.manual_seed(0), dtype=torch.double)
    flow.send(Replies(torch.arange(8), {"vectors": vectors}))
    answered(flow, [0], update=[[0.0]], num_examples=[1])
    said = "num_vectors: subspaces of 2 dimensions hold all inputs of 2 values"
    assert said in caplog.text
    assert len(caplog.records) == 1
