from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from umbel.algorithms.base import Served
from umbel.client.work.base import Cost
from umbel.engines.metering import Spent
from umbel.flow import Rows
from umbel.run.records import Record, make_record
from umbel.run.scores import ClientScores


def scores(accuracy: list[float], num_examples: list[int]) -> ClientScores:
    size = len(accuracy)
    models = Rows(torch.zeros(2, 1), torch.zeros(size, dtype=torch.long))
    return ClientScores(
        clusters=np.array([0, 0, 1][:size]),
        models=models,
        loss=np.array(accuracy) * 2,
        accuracy=np.array(accuracy),
        num_examples=np.array(num_examples),
        labels=np.array([4, 4, 7][:size]),
        served=Served(models, torch.tensor([4, 4, 7][:size])),
    )


def test_a_record_sums_up_what_clients_get() -> None:
    record = make_record(
        4,
        np.array([0, 0, 1]),
        np.array([3, 3, 1]),
        scores([0.5, 1.0, 0.0], [10, 10, 20]),
        spent=Spent(100, 50, Cost(30, 20), 0.25),
        clustering_seconds=0.5,
        missing={7, 2},
        refused={5: "late", 1: "update: nan"},
        seconds=1.5,
        measures={"merges": 2, "best_cross": math.nan},
    )
    assert record.round == 4
    assert record.accuracy == pytest.approx(0.5)
    assert record.worst == 0.0
    assert record.accuracy_std == pytest.approx(math.sqrt(1 / 6))
    assert record.weighted_accuracy == pytest.approx(15 / 40)
    assert record.loss == pytest.approx(1.0)
    assert record.num_clusters == 2
    assert (record.ari, record.purity, record.nmi) == pytest.approx((1.0, 1.0, 1.0))
    assert (record.bytes_down, record.bytes_up) == (100, 50)
    assert (record.gradient_evaluations, record.loss_evaluations) == (30, 20)
    assert (record.seconds, record.client_seconds, record.clustering_seconds) == (1.5, 0.25, 0.5)
    assert record.missing == (2, 7)
    assert list(record.refused) == [1, 5]
    assert record.measures == {"merges": 2.0, "best_cross": None}


def test_without_groups_nothing_is_made_up() -> None:
    unknown = make_record(0, np.array([0]), None, scores([0.5], [1]))
    assert unknown.accuracy == 0.5
    assert (unknown.ari, unknown.purity, unknown.nmi) == (None, None, None)


def test_clusters_are_scored_in_rounds_that_are_not_evaluated_too() -> None:
    groups, clusters = np.array([0, 0, 1, 1]), np.array([5, 5, 2, 2])
    record = make_record(0, clusters, groups, None)
    assert (record.accuracy, record.loss) == (None, None)
    assert (record.ari, record.purity, record.num_clusters) == (1.0, 1.0, 2)


def test_clients_without_test_examples_do_not_count() -> None:
    record = make_record(0, np.array([0, 0, 0]), None, scores([0.5, math.nan, 1.0], [4, 0, 4]))
    assert record.accuracy == 0.75
    nobody = make_record(0, np.array([0]), None, scores([math.nan], [0]))
    assert nobody.accuracy is None
    assert nobody.num_clusters == 1


def test_a_record_is_one_line_of_json_and_reads_back_the_same() -> None:
    record = Record(
        3,
        accuracy=0.1 + 0.2,
        missing=(1, 4),
        refused={2: 'update: "odd"\nshape'},
        measures={"merges": 2.0, "best_cross": None},
    )
    line = record.to_json()
    assert "\n" not in line
    assert json.loads(line)["merges"] == 2.0
    assert Record.from_json(line) == record


@pytest.mark.parametrize("line", ["", '{"round": 1', "[1]"])
def test_a_line_that_is_no_whole_record_is_an_error(line: str) -> None:
    with pytest.raises((ValueError, LookupError, TypeError)):
        Record.from_json(line)
