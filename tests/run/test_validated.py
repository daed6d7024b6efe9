"""With validation examples rounds are judged by these, and the test is opened once, at the end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

import umbel
from tests.folder.test_execution import assert_goes_on_to, finish
from umbel.algorithms import FLACC, IFCA, FedAvg, Restarts
from umbel.algorithms.base import Algorithm
from umbel.client.work import LocalTraining
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.data.sources import Sources
from umbel.engines import EngineSettings, Vectorised
from umbel.flow import Engine, Replies, Request
from umbel.folder.execution import execute_together
from umbel.folder.run_folder import RunFolder
from umbel.networks import MLP
from umbel.result.run import Experiment, Run, load

LOCAL = LocalTraining(epochs=2, batch_size=10)
EXPERIMENT = Experiment(
    replace(ROTATED_DIGITS, clients=8, examples=(40, 60), validation_fraction=0.2),
    MLP((16,)),
    IFCA(local=LOCAL, num_clusters=2),
    name="small",
    rounds=5,
)


@dataclass
class Watched:
    """Notes which split each request is about."""

    engine: Engine
    splits: list[str] = field(default_factory=list)

    def send(self, request: Request) -> Replies:
        self.splits.append(request.work.split)
        return self.engine.send(request)


def watched(algorithm: Algorithm[Any], **more: object) -> tuple[Run, Watched]:
    run = replace(EXPERIMENT, algorithm=algorithm).open(Sources.default())
    engine = Watched(Vectorised(run.net, run.federation))
    return replace(run, engine=engine, **more), engine  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "algorithm",
    [
        FedAvg(LOCAL),
        FLACC(LOCAL, n_sep=1),
        Restarts(IFCA(local=LOCAL, num_clusters=2), restarts=2, trial_rounds=2),
    ],
    ids=lambda each: type(each).__name__,
)
def test_nothing_reads_test_examples_before_the_end(algorithm: Algorithm[Any]) -> None:
    run, engine = watched(algorithm)
    read = []
    records = []
    for _, record in run.rounds(4):
        records.append(record)
        read.append(set(engine.splits) - {"train"})
        engine.splits.clear()
    assert read == [{"validation"}, {"validation"}, {"validation"}, {"validation", "test"}]
    assert [record.accuracy is None for record in records] == [True, True, True, False]
    assert all(record.validation_accuracy is not None for record in records)
    assert all(record.validation_loss is not None for record in records)


def test_the_test_is_opened_once_however_rare_evaluations_are() -> None:
    run, engine = watched(FedAvg(LOCAL), evaluate_every=3)
    records = [record for _, record in run.rounds(5)]
    assert engine.splits.count("test") == 1
    judged = [record.round for record in records if record.validation_loss is not None]
    assert judged == [2, 4]


def test_a_goal_is_about_validation_and_the_test_follows_it(tmp_path: Path) -> None:
    run, engine = watched(FedAvg(LOCAL))
    goal = 0.25
    result = run.save(tmp_path / "run", 20, until=f"accuracy={goal}")
    *before, last = result.records
    assert len(result.records) < 20
    assert last.validation_accuracy is not None
    assert last.validation_accuracy >= goal
    assert all((r.validation_accuracy or 0) < goal and r.loss is None for r in before)
    assert last.accuracy is not None
    assert result.clients[0].accuracy is not None
    assert engine.splits.count("test") == 1
    assert result.folder.stop is not None
    assert result.folder.stop.why.startswith("validation accuracy")


def test_a_run_that_is_finished_by_hand_is_judged_on_both(tmp_path: Path) -> None:
    run, _ = watched(FedAvg(LOCAL), evaluate_every=10)
    for _ in islice(run.rounds(9, folder=tmp_path / "run"), 2):
        pass
    last = umbel.finish(tmp_path / "run", run).last
    assert None not in (last.accuracy, last.loss, last.validation_accuracy, last.validation_loss)


def test_goals_that_validation_does_not_measure_are_refused(tmp_path: Path) -> None:
    run, _ = watched(FedAvg(LOCAL))
    for goal in ("worst=0.5", "weighted_accuracy=0.5", "accuracy_std=0.1"):
        with pytest.raises(umbel.UsageError, match="judged on validation examples"):
            run.save(tmp_path / "run", 2, until=goal)
    assert not (tmp_path / "run").exists()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    return finish(RunFolder.create(tmp_path_factory.mktemp("runs") / "whole", EXPERIMENT))


def test_a_run_with_validation_goes_on_to_the_same_end(tmp_path: Path, whole: RunFolder) -> None:
    assert_goes_on_to(whole, tmp_path / "run", EXPERIMENT, 4)


def test_runs_side_by_side_are_judged_as_each_alone(tmp_path: Path) -> None:
    def folders(where: Path) -> list[RunFolder]:
        scenario = replace(ROTATED_DIGITS, clients=8, examples=(50,), validation_fraction=0.2)
        alike = replace(EXPERIMENT, scenario=scenario, engine=EngineSettings(device="cpu"))
        return [RunFolder.create(where / str(n), alike.with_seed(n)) for n in range(2)]

    side, alone = folders(tmp_path / "side"), folders(tmp_path / "alone")
    assert execute_together(side, Sources.default(), lambda _: None)
    for one, other in zip(side, map(finish, alone), strict=True):
        for found, expected in zip(one.records(), other.records(), strict=True):
            assert found.validation_accuracy == pytest.approx(expected.validation_accuracy)
            assert found.accuracy == pytest.approx(expected.accuracy)


def test_reports_show_rounds_on_validation(whole: RunFolder) -> None:
    from umbel.report import by_round as rounds
    from umbel.report.terminal import results as terminal

    result = load(whole.path)
    assert result.validated
    charts = [panel.figure for panel in rounds.quality(result)]
    accuracy = charts[0]
    assert accuracy.y_title == "validation accuracy"  # type: ignore[union-attr]
    assert len(accuracy.lines[0].x) == len(result.records)  # type: ignore[union-attr]
    assert "validation accuracy" in terminal.one_line(result.records[0], 5)
    assert "validation accuracy" in repr(umbel.table(result))
