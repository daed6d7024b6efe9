"""FedGroup by hand: its first groups by both metrics, later clients, lost replies."""

from __future__ import annotations

from dataclasses import replace
from math import sqrt

import pytest
import torch

from tests.federations import answered, context, requested, setup
from umbel.algorithms import FedGroup
from umbel.checks import UsageError
from umbel.client.work import LocalTraining
from umbel.flow import Replies

LOCAL = LocalTraining(lr=0.5, lr_decay=0.5)
METHOD = FedGroup(2, per_cluster=2, local=LOCAL)
UPDATES = torch.tensor([[2.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
START = METHOD.init(replace(setup(4, 2), new_model=lambda _: torch.tensor([10.0, 10.0])))


def test_first_updates_make_the_groups_their_models_and_their_directions() -> None:
    flow = METHOD.round(START, context([0, 2], 4, 2, number=1))
    request = requested(flow)
    assert request.work == LocalTraining(lr=0.5, steps=50)  # as in round 0
    assert request.clients.tolist() == [0, 1, 2, 3]  # 2 K of them, whatever the cohort
    assert request.each["theta"].take(torch.arange(4)).tolist() == [[10.0, 10.0]] * 4
    columns = {"update": UPDATES, "num_examples": torch.tensor([1, 3, 1, 1])}
    following = flow.send(Replies(torch.arange(4), columns))
    # Then FedAvg in each group, from (1 (2, 0) + 3 (1, 0)) / 4 and ((0, 1) + (0, 3)) / 2.
    assert following.work == LocalTraining(lr=0.25)
    assert following.clients.tolist() == [0, 2]
    assert following.each["theta"].table.tolist() == [[11.25, 10.0], [10.0, 12.0]]
    after = answered(flow, [0, 2], update=[[1.0, 1.0], [2.0, 2.0]], num_examples=[1, 1])
    assert after.models.tolist() == [[12.25, 11.0], [12.0, 14.0]]
    assert after.labels.tolist() == [0, 0, 1, 1]
    assert after.directions.tolist() == [[1.5, 0.0], [0.0, 2.0]]
    assert after.similarity.tolist() == [[1, 1, 0, 0], [1, 1, 0, 0], [0, 0, 1, 1], [0, 0, 1, 1]]


@pytest.mark.parametrize(("metric", "groups"), [("edc", [0, 1, 0]), ("madc", [0, 0, 1])])
def test_the_metrics_see_different_groups(metric: str, groups: list[int]) -> None:
    # Rows at 0, 90 and 40 degrees. By the cosines of pairs, "edc" takes 0 and 40 together; for
    # "madc", those at 0 and 90 have cosines .77 and .64 to the third, and differ least, by .12: 0
    # and 40 differ by |0 - .64|, and 90 and 40 by |0 - .77|.
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.766, 0.643]])
    method = FedGroup(2, metric=metric, first_steps=1)  # type: ignore[arg-type]
    flow = method.round(
        replace(START, labels=START.labels[:3], placed=START.placed[:3]), context([0], 3, 2)
    )
    requested(flow)
    flow.send(Replies(torch.arange(3), {"update": rows, "num_examples": torch.ones(3).long()}))
    after = answered(flow, [0], update=[[0.0, 0.0]], num_examples=[1])
    assert after.labels.tolist() == groups


GROUPED = replace(
    START,
    models=torch.tensor([[1.0, 1.0], [2.0, 2.0]]),
    labels=torch.tensor([0, 0, 1, 1]),
    placed=torch.tensor([True, False, True, False]),
    directions=torch.tensor([[1.5, 0.0], [0.0, 2.0]]),
)


def test_a_later_client_trains_the_first_model_joins_a_direction_and_trains_with_it() -> None:
    flow = METHOD.round(GROUPED, context([1, 2], 4, 2))
    request = requested(flow)
    assert request.clients.tolist() == [1]
    assert (request.optional, request.use) == (True, "compared")
    assert request.each["theta"].take(torch.arange(1)).tolist() == [[10.0, 10.0]]
    columns = {"update": torch.tensor([[1.0, 3.0]]), "num_examples": torch.tensor([1])}
    following = flow.send(Replies(torch.tensor([1]), columns))
    assert following.each["theta"].index.tolist() == [1, 1]
    after = answered(flow, [1, 2], update=[[1.0, 0.0], [3.0, 0.0]], num_examples=[1, 1])
    assert after.models.tolist() == [[1.0, 1.0], [4.0, 2.0]]
    assert after.labels.tolist() == [0, 1, 1, 1]
    assert after.placed.tolist() == [True, True, True, False]


def test_newcomers_are_compared_with_the_directions() -> None:
    flow = METHOD.assign(GROUPED, context([0], 1, 2))
    assert requested(flow).work == LocalTraining(lr=0.5, steps=50)
    found = answered(flow, [0], update=[[3.0, 1.0]], num_examples=[1])
    # Cosines 3 and 1, each divided by the length, the root of 10.
    expected = [[(1 - 3 / sqrt(10)) / 2, (1 - 1 / sqrt(10)) / 2]]
    torch.testing.assert_close(found.scores, torch.tensor(expected).double())
    with pytest.raises(UsageError, match="no cluster to join"):
        next(METHOD.assign(START, context([0], 1, 2)))


def test_too_few_first_answers_are_asked_again() -> None:
    flow = METHOD.round(START, context([0, 2], 4, 2))
    requested(flow)
    after = answered(flow, [3], update=[[1.0, 0.0]], num_examples=[1])
    assert after.models.tolist() == [[10.0, 10.0]]
    assert not after.placed.any()
    again = METHOD.round(after, context([0], 4, 2, number=1))
    assert requested(again).clients.tolist() == [0, 1, 2, 3]


def test_settings_out_of_range_are_refused() -> None:
    for setting in ("num_clusters", "per_cluster", "first_steps"):
        with pytest.raises(UsageError, match=f"{setting}: 0 is not 1 or more"):
            replace(METHOD, **{setting: 0})  # type: ignore[arg-type]
