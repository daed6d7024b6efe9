"""Metrics over Flower: sites compute them, and run no function that they do not know."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import RecordDict

from tests.algorithms.test_contract import LOCAL
from tests.flower.attacks import with_array
from tests.flower.small import SMALL, engine_of, grid_of
from tests.flower.test_hostile import attacked
from umbel.algorithms import FedAvg, FedEM
from umbel.client.work import ChooseByLoss, Evaluation
from umbel.data.sources import Sources
from umbel.experiment.toml_file import plain
from umbel.flower import Settings, serve
from umbel.flower.errors import RefusedError
from umbel.flower.exchange import WORK
from umbel.flower.messages import work_in

METRICS = ("log-loss", "macro-f1", "auroc")
MEASURED = replace(SMALL, algorithm=FedAvg(LOCAL), participation=1.0, rounds=2, metrics=METRICS)


@pytest.mark.parametrize("method", [FedAvg(LOCAL), FedEM(2, local=LOCAL)], ids=str)
def test_they_are_those_of_a_run_in_this_process(method: FedAvg | FedEM, tmp_path: Path) -> None:
    experiment = replace(MEASURED, algorithm=method)
    grid = grid_of(experiment, tmp_path)
    folder = serve(grid, experiment, Settings(8, runs_dir=str(tmp_path / "runs")))
    run = experiment.open(Sources.default())
    *_, (_, record) = run.rounds(2)
    (*_, found) = folder.records()
    for name in METRICS:
        assert found.measures[name] == pytest.approx(record.measures[name], abs=1e-4)
        assert all(client.metrics[name] is not None for client in folder.clients())


def test_a_metric_outside_its_bounds_is_set_aside(tmp_path: Path) -> None:
    def lie(content: RecordDict) -> RecordDict:
        if "macro-f1" not in content.array_records.get("columns", {}):
            return content
        (number,) = content.array_records["columns"]["macro-f1"].shape
        return with_array(content, "columns", "macro-f1", data=np.full(number, 7.0).tobytes())

    grid = attacked(tmp_path, WORK, lie, MEASURED)
    run = replace(MEASURED.open(Sources.default()), engine=engine_of(grid))
    ((_, record),) = run.rounds(1)
    assert {"macro-f1: 7 is not within 0 to 1" in why for why in record.refused.values()} == {True}
    assert sorted(record.refused) == [1, 4, 7]
    assert 0 <= (record.measures["macro-f1"] or -1) <= 1


@pytest.mark.parametrize(
    "work",
    [
        Evaluation(metrics=("os:getcwd",)),
        ChooseByLoss(Evaluation(metrics=("os:getcwd",))),
    ],
    ids=lambda work: type(work).__name__,
)
def test_a_site_runs_no_function_but_those_of_its_experiment(
    work: Evaluation | ChooseByLoss,
) -> None:
    text = json.dumps(plain(work))
    with pytest.raises(RefusedError, match="work: 'os:getcwd' is not allowed here"):
        work_in(text)
    assert work_in(text, {"os:getcwd"}) == work


def test_a_site_whose_experiment_has_another_metric_gives_no_scores(tmp_path: Path) -> None:
    grid = grid_of(replace(MEASURED, metrics=None), tmp_path)
    experiment = replace(MEASURED, metrics=("tests.flower.own_work:errors",))
    run = replace(experiment.open(Sources.default()), engine=engine_of(grid))
    ((_, record),) = run.rounds(1)
    assert record.loss is None
    assert len(record.refused) == 8
    assert all("is not allowed here" in why for why in record.refused.values())
    grid = grid_of(experiment, tmp_path)
    run = replace(experiment.open(Sources.default()), engine=engine_of(grid))
    ((_, record),) = run.rounds(1)
    assert not record.refused
    assert (record.measures["errors"] or 0) > 0
