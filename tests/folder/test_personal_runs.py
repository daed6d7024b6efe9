"""Runs whose clients tune what they are served: in folders, stopped, and side by side."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import f1_score

import umbel
from tests.folder.test_execution import assert_goes_on_to, finish
from tests.run.tuned import EXPERIMENT, ended, of_each, opened
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.data.sources import Sources
from umbel.engines import EngineSettings
from umbel.folder.execution import execute_together
from umbel.folder.run_folder import RunFolder
from umbel.report.terminal import results as terminal
from umbel.result.run import load


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return finish(RunFolder.create(tmp_path_factory.mktemp("runs") / "whole", EXPERIMENT))


def test_results_are_those_of_the_tuned_models_with_the_others_beside_them(
    whole: RunFolder,
) -> None:
    result = load(whole.path)
    last, clients = result.last, result.clients
    assert [record.accuracy for record in result.records[:-1]] == [None, None]
    assert last.accuracy == pytest.approx(np.mean([c.accuracy for c in clients]))
    untuned = np.mean([c.untuned_accuracy for c in clients])
    assert last.measures["untuned_accuracy"] == pytest.approx(untuned)
    share = np.mean([bool(c.tuned_epochs) for c in clients])
    assert last.measures["tuned_share"] == pytest.approx(share)
    assert share > 0
    chosen = last.measures["tuned_validation_loss"]
    assert last.validation_loss is not None
    assert chosen is not None
    assert chosen < last.validation_loss
    rows = umbel.results(whole.path).clients
    assert rows.column("tuned_epochs") == [c.tuned_epochs for c in clients]
    federation = EXPERIMENT.open(Sources.default()).federation
    for number, client in enumerate(clients):
        x, y = federation.test.of(number)
        with torch.no_grad():
            right = (result.model_for(client.name)(x).argmax(1) == y).float().mean()
        assert client.accuracy == pytest.approx(float(right))
    lines = [str(cell) for cell in terminal.run_table(last).columns[0].cells]
    assert "accuracy before fine-tuning" in lines


def test_a_run_that_was_stopped_goes_on_to_the_same_models(
    tmp_path: Path, whole: RunFolder
) -> None:
    assert_goes_on_to(whole, tmp_path / "run", EXPERIMENT, 2)


def test_a_run_that_ends_early_tunes_what_it_has(tmp_path: Path) -> None:
    run = opened()
    result = run.save(tmp_path / "run", 9, until="accuracy=0.05")
    assert len(result.records) < 9
    assert "tuned_share" in result.last.measures


def test_runs_side_by_side_tune_as_each_alone(tmp_path: Path) -> None:
    def folders(where: Path) -> list[RunFolder]:
        scenario = replace(ROTATED_DIGITS, clients=8, examples=(50,))
        alike = replace(EXPERIMENT, scenario=scenario, engine=EngineSettings(device="cpu"))
        return [RunFolder.create(where / str(n), alike.with_seed(n)) for n in range(2)]

    side, alone = folders(tmp_path / "side"), folders(tmp_path / "alone")
    assert execute_together(side, Sources.default(), lambda _: None)
    for one, other in zip(side, map(finish, alone), strict=True):
        for found, expected in zip(one.clients(), other.clients(), strict=True):
            assert found.tuned_epochs == expected.tuned_epochs
            assert found.accuracy == pytest.approx(expected.accuracy)


def test_metrics_are_those_of_the_tuned_models() -> None:
    plain = opened()
    run = replace(plain, metrics=("macro-f1",))
    scores, without = ended(run), ended(plain)
    assert scores.loss == pytest.approx(without.loss, rel=1e-3)
    module = run.net.module(of_each(scores)[0])
    x, y = run.federation.test.of(0)
    with torch.no_grad():
        expected = f1_score(y, module(x).argmax(1), average="macro", zero_division=0)
    assert scores.metrics["macro-f1"][0] == pytest.approx(expected)
    *_, (_, record) = run.rounds(3)
    assert record.measures["macro-f1"] == pytest.approx(np.nanmean(scores.metrics["macro-f1"]))
