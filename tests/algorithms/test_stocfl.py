"""StoCFL by hand: first updates, merges, the pull towards the global model, and newcomers."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from tests.federations import answered, context, requested, setup
from umbel.algorithms import StoCFL
from umbel.algorithms.stocfl import StoCFLState
from umbel.checks import UsageError
from umbel.client.work import AnchoredTraining, LocalTraining
from umbel.flow import Replies

LOCAL, ALONE = LocalTraining(lr=0.5, lr_decay=0.5), LocalTraining(lr=0.1, epochs=20)
METHOD = StoCFL(0.5, 0.2, ALONE, LOCAL)
START = METHOD.init(replace(setup(4, 2), new_model=lambda _: torch.tensor([10.0, 10.0])))


def replies(clients: list[int], update: list[list[float]]) -> Replies:
    counts = torch.arange(1, len(clients) + 1)
    return Replies(torch.tensor(clients), {"update": torch.tensor(update), "num_examples": counts})


def test_clients_that_move_the_anchor_alike_are_a_cluster_and_train_two_models() -> None:
    flow = METHOD.round(START, context([0, 1, 3], 4, 2, number=1))
    first = requested(flow)
    assert first.work == ALONE
    assert (first.optional, first.use) == (True, "compared")
    second = flow.send(replies([0, 1, 3], [[2.0, 0.0], [1.0, 0.0], [0.0, 3.0]]))
    assert second.work == AnchoredTraining(LocalTraining(lr=0.25), 0.2)
    assert second.each["theta"].take(torch.arange(3)).tolist() == [[10.0, 10.0]] * 3
    assert second.each["anchor"].take(torch.arange(3)).tolist() == [[10.0, 10.0]] * 3
    third = flow.send(replies([0, 1, 3], [[4.0, 0.0], [2.0, 0.0], [0.0, 5.0]]))
    assert third.work == LocalTraining(lr=0.25)
    after = answered(
        flow, [0, 1, 3], update=[[3.0, 0.0], [0.0, 0.0], [0.0, 6.0]], num_examples=[1, 2, 3]
    )
    assert after.labels.tolist() == [1, 1, 0, 2]  # client 2 was not asked
    # omega + (3, 6) / 3, and plain means: omega + (4 + 2) / 2, omega + (0, 5).
    assert after.models.tolist() == [[11.0, 12.0], [13.0, 10.0], [10.0, 15.0]]
    assert after.moves.tolist() == [[2.0, 0.0], [1.0, 0.0], [0.0, 0.0], [0.0, 3.0]]
    assert after.seen.tolist() == [True, True, False, True]
    assert after.origin.tolist() == [[10.0, 10.0]]


STATE = StoCFLState(
    torch.tensor([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [3.0, 3.0]]),
    torch.tensor([1, 1, 2, 3]),
    origin=torch.zeros(1, 2),
    moves=torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.0, 2.0], [-1.0, 0.0]]),
    seen=torch.ones(4).bool(),
)


@pytest.mark.parametrize(
    ("cohort", "labels"),
    [([1, 2], [1, 1, 1, 2]), ([0, 2], [1, 1, 2, 3]), ([0, 1, 2], [1, 1, 1, 2])],
)
def test_clusters_are_compared_by_the_clients_of_the_cohort(
    cohort: list[int], labels: list[int]
) -> None:
    # The mean update of clients 0 and 1 is (1/2, 1/2), whose cosine to that of client 2 is .71.
    flow = METHOD.round(STATE, context(cohort, 4, 2))
    still = [[0.0, 0.0]] * len(cohort)
    request = requested(flow)
    assert request.clients.tolist() == cohort
    # Cluster 1 is larger than cluster 2: its model stays.
    merged = max(labels) == 2
    models = [0.0, 1.0, 3.0] if merged else [0.0, 1.0, 2.0, 3.0]
    assert request.each["theta"].table[:, 0].tolist() == models
    flow.send(replies(cohort, still))
    after = answered(flow, cohort, update=still, num_examples=[1] * len(cohort))
    assert after.labels.tolist() == labels


def test_a_client_whose_first_update_is_lost_is_asked_again_and_uses_the_global_model() -> None:
    flow = METHOD.round(START, context([2], 4, 2))
    requested(flow)
    nobody = torch.zeros(0, dtype=torch.long)
    with pytest.raises(StopIteration) as round_end:
        flow.send(Replies(nobody, {"update": torch.zeros(0, 2), "num_examples": nobody}))
    after = round_end.value.value
    assert not after.seen.any()
    assert requested(METHOD.round(after, context([2], 4, 2))).work == ALONE
    serving = METHOD.serve(after, context([2], 4, 2))
    with pytest.raises(StopIteration) as end:
        next(serving)
    assert end.value.value.models.take(torch.arange(1)).tolist() == [[10.0, 10.0]]


def test_newcomers_join_the_nearest_cluster_or_use_the_global_model() -> None:
    flow = METHOD.assign(STATE, context([0, 1], 2, 2))
    assert requested(flow).work == ALONE
    found = answered(flow, [0, 1], update=[[0.0, 1.0], [1.0, -4.0]], num_examples=[1, 1])
    root = 2**-0.5
    assert found.labels.tolist() == [2, 0]
    expected = torch.tensor([0.5, 1 - root, 0.0, 1.0]).double()
    torch.testing.assert_close(found.scores[0], expected)


def test_settings_out_of_range_are_refused() -> None:
    for setting, value in (("tau", 1.0), ("tau", -1.0), ("mu", -0.1)):
        with pytest.raises(UsageError, match=rf"{setting}: {value} is not"):
            replace(METHOD, **{setting: value})  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"local\.proximal"):
        StoCFL(local=LocalTraining(proximal=0.1))
