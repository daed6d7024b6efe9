"""Runs that stop before their last round, and runs that go on after it."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import umbel as package
from tests.folder.saved import LOCAL, make_run
from tests.folder.test_execution import assert_same_end, untimed
from tests.shell import Shell
from umbel import (
    CFLGP,
    IFCA,
    REGRESSION,
    Federation,
    RunFolder,
    UsageError,
)
from umbel.run.records import Record
from umbel.run.scores import adjusted_rand_index, purity
from umbel.run.stopping import Budget, Stop, seconds
from umbel.server.numbering import in_order_of_appearance


@pytest.mark.parametrize(
    ("text", "value"),
    [("90", 90), ("90s", 90), ("10m", 600), ("1.5h", 5400), ("2 d", 172800), (0.25, 0.25)],
)
def test_times_are_read(text: float | str, value: float) -> None:
    assert seconds(text) == value


@pytest.mark.parametrize("text", ["ten", "-5m", 0, float("nan"), True])
def test_what_is_no_time_is_refused(text: Any) -> None:
    said = r"is not a time such as 90s, 10m, 1.5h or 2d, or a number of seconds"
    with pytest.raises(UsageError, match=said):
        Budget.of(max_time=text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("accuracy=high", "until: 'accuracy=high' is not of the form accuracy=0.9"),
        ("acuracy=0.9", "until: 'acuracy' is not a measure to reach; did you mean accuracy"),
        ("seconds=3", "until: 'seconds' is not a measure to reach; known: accuracy, worst"),
        ("accuracy=90", "until: 'accuracy=90' is not in 0 to 1"),
    ],
)
def test_what_is_no_goal_is_refused(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Budget.of(text)


@pytest.mark.parametrize(
    ("until", "message"),
    [
        (
            0.9,
            'until: 0.9 is not a goal such as "accuracy=0.9", a list of goals, or {"accuracy": 0',
        ),
        ({"accuracy": "0.9"}, "until: accuracy: '0.9' is not a number"),
    ],
    ids=str,
)
def test_goals_of_another_type_are_refused_by_what_was_given(until: Any, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        Budget.of(until)
    assert str(refused.value).startswith(message)


def test_goals_are_read_and_reached() -> None:
    budget = Budget.of(["accuracy=0.9", "loss=0.2"])
    assert budget == Budget.of({"accuracy": 0.9, "loss": 0.2})
    assert Budget.from_plain(budget.plain) == budget
    assert budget.reached(Record(0)) is None
    assert budget.reached(Record(0, loss=0.3, accuracy=0.8)) is None
    assert budget.reached(Record(0, loss=0.3, accuracy=0.9)) == "accuracy 0.9 is at least 0.9"
    assert budget.reached(Record(0, loss=0.1, accuracy=0.8)) == "loss 0.1 is at most 0.2"


def test_goals_that_a_run_never_measures_are_refused(tmp_path: Path) -> None:
    alone = replace(make_run().federation, groups=None)
    untested = Federation.from_arrays(
        [make_run().federation.train.of(client) for client in range(6)], test_fraction=0
    )
    regression = replace(make_run(), net=package.Net(make_run().net.build, REGRESSION))
    for run, until, message in [
        (make_run(federation=alone), "ari=0.9", "the planted groups are not known"),
        (make_run(federation=untested), "accuracy=0.9", "no client has test examples"),
        (regression, "worst=0.9", "a regression has only a loss"),
    ]:
        with pytest.raises(UsageError, match=f"until: '.*' is not measured here: {message}"):
            run.save(tmp_path / "mine", 3, until=until)
        assert not (tmp_path / "mine").exists()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> package.Result:
    """Eight rounds."""
    return make_run().save(tmp_path_factory.mktemp("runs") / "mine", 8)


def goal(whole: package.Result) -> tuple[float, int]:
    """An accuracy, and after how many rounds, not all, it is first reached."""
    accuracies = [record.accuracy or 0 for record in whole.records]
    best = max(accuracies[1:6])
    return best, 1 + next(n for n, value in enumerate(accuracies) if value >= best)


def test_a_goal_ends_a_run_whose_models_can_be_used(tmp_path: Path, whole: package.Result) -> None:
    best, after = goal(whole)
    result = make_run().save(tmp_path / "mine", 8, until={"accuracy": best})
    assert untimed(result.folder) == untimed(whole.folder)[:after]
    said = f"accuracy {best:.4g} is at least {best:g}"
    assert result.folder.stop == Stop(after, said)
    assert result.model_for("0") is not None
    again = package.resume(tmp_path / "mine", make_run())  # nothing is left to do
    assert len(again.records) == after


def test_a_run_that_was_begun_is_not_given_another_goal_or_time_without_a_word(
    tmp_path: Path, whole: package.Result, caplog: pytest.LogCaptureFixture
) -> None:
    best, after = goal(whole)
    run, folder = make_run(), tmp_path / "mine"
    next(run.rounds(8, folder=folder))
    said = (
        r"until: 'loss=0.1' is not none, as planned in .*resume\(\".*\", run, until=\"loss=0.1\"\)"
    )
    with pytest.raises(UsageError, match=said):
        run.save(folder, 8, until="loss=0.1")
    several = r'run, until=\["accuracy=0.9", "loss=0.1"\]\) changes it'
    with pytest.raises(UsageError, match=several):
        run.save(folder, 8, until=["loss=0.1", "accuracy=0.9"])
    with pytest.raises(UsageError, match=r"max_time: '60s' is not none, as planned in"):
        run.save(folder, 8, max_time="1m")
    goals = [f"accuracy={best}", "loss=1e-9"]
    result = package.resume(folder, run, until=goals)
    assert run.save(folder, 8, until=goals[::-1]).records == result.records
    assert not caplog.text
    assert len(run.save(folder, 8).records) == after
    assert f"stopped after {after} rounds: accuracy" in caplog.text


def test_the_time_ends_a_run_after_the_round_it_is_over_in(tmp_path: Path) -> None:
    run = make_run(evaluate_every=5)
    result = run.save(tmp_path / "mine", 8, max_time=1e-9)
    (record,) = result.records
    assert record.accuracy is not None  # the last round is always evaluated
    stop = result.folder.stop
    assert stop is not None
    assert "s of 1e-09 s are used up" in stop.why


def test_killed_while_stopping_a_run_stops_where_it_would_have(
    tmp_path: Path, whole: package.Result
) -> None:
    best, _ = goal(whole)
    expected = make_run().save(tmp_path / "whole" / "mine", 8, until={"accuracy": best}).folder
    folder = make_run().save(tmp_path / "killed" / "mine", 8, until={"accuracy": best}).folder
    folder.file("clusters.csv").unlink()
    folder.file("stopped.json").unlink()
    assert not folder.finished
    package.resume(folder.path, make_run())
    assert_same_end(folder, expected)
    assert folder.stop == expected.stop


def test_a_loop_that_was_left_can_be_finished_there(tmp_path: Path, whole: package.Result) -> None:
    run, path = make_run(evaluate_every=3), tmp_path / "mine"
    for _, record in run.rounds(8, folder=path):
        if record.round == 3:
            break
    way = r"not finished; go on .* umbel\.resume\(\".*\", run\), .* umbel\.finish\(\".*\", run\)$"
    with pytest.raises(UsageError, match=way):
        package.load(path)
    result = package.finish(path, run)
    assert result.folder.stop == Stop(4, "it was finished by hand")
    assert result.records[-1].untimed() == whole.records[3].untimed()
    assert package.finish(path, run).folder.stop == Stop(4, "it was finished by hand")


def test_a_run_that_ends_early_is_measured_by_the_clusters_that_it_serves(
    tmp_path: Path,
) -> None:
    run = make_run(algorithm=IFCA(3, LOCAL), participation=0.3, evaluate_every=5)
    for _ in run.rounds(5, folder=tmp_path / "mine"):
        break
    result = package.finish(tmp_path / "mine", run)
    clusters = np.array(list(result.clusters.values()))
    groups = run.federation.groups
    assert groups is not None
    assert not np.array_equal(clusters, in_order_of_appearance(result.state.labels.numpy()))
    assert result.last.num_clusters == len(np.unique(clusters))
    assert result.last.purity == purity(groups, clusters)
    assert result.last.ari == adjusted_rand_index(groups, clusters)


def test_a_run_without_a_round_is_not_finished(tmp_path: Path) -> None:
    make_run().rounds(8, folder=tmp_path / "mine")
    with pytest.raises(UsageError, match="is not a run with at least one finished round"):
        package.finish(tmp_path / "mine", make_run())


def test_more_rounds_are_those_of_a_run_that_had_them_from_the_start(
    tmp_path: Path, whole: package.Result
) -> None:
    path = tmp_path / "mine"
    make_run().save(path, 5)
    with pytest.raises(UsageError, match="rounds: 5 is not more than the 5 rounds that are done"):
        package.resume(path, make_run(), rounds=5)
    with pytest.raises(UsageError, match="rounds: 'some' is not a number such as 80 or"):
        package.resume(path, make_run(), rounds="some")
    assert len(package.resume(path, make_run(), until="accuracy=0").records) == 5
    result = package.resume(path, make_run(), rounds="+3")
    assert_same_end(result.folder, whole.folder)
    assert result.experiment == whole.experiment


def test_a_stopped_run_goes_on_to_a_further_goal_or_to_its_end(
    tmp_path: Path, whole: package.Result
) -> None:
    path = tmp_path / "mine"
    make_run().save(path, 8, until="accuracy=0")
    assert package.resume(path, make_run(), rounds="+2").experiment.rounds == 3
    assert len(package.load(path).records) == 3
    assert len(package.resume(path, make_run(), rounds=8, max_time=1e-9).records) == 4
    result = package.resume(path, make_run(), until="loss=0")
    assert result.folder.stop is None
    assert untimed(result.folder) == untimed(whole.folder)


def test_goals_and_times_that_are_not_given_again_stay_unless_they_ended_the_run(
    tmp_path: Path,
) -> None:
    path = tmp_path / "mine"
    by_time = make_run().save(path, 8, until="accuracy=0", max_time=1e-9).folder
    by_time.replan(8, Budget.of("accuracy=0.99999", 1e-9), turn=False)
    assert len(package.resume(path, make_run()).records) == 2  # its time is over once more
    package.resume(path, make_run(), max_time=1e-8)
    assert by_time.budget == Budget.of("accuracy=0.99999", 1e-8)
    package.resume(path, make_run(), rounds=5)
    assert by_time.budget == Budget.of("accuracy=0.99999")
    package.resume(path, make_run(), rounds=6, until="accuracy=0", max_time="1h")
    package.resume(path, make_run(), rounds=8)
    assert by_time.budget == Budget.of((), "1h")


def test_a_method_that_reads_how_many_rounds_there_are_goes_on_alike_if_told(
    tmp_path: Path,
) -> None:
    run = make_run(algorithm=CFLGP(2, patience=2, local=LOCAL), participation=1.0)
    expected = run.save(tmp_path / "whole" / "mine", 6)
    run.save(tmp_path / "parts" / "mine", 3)
    found = package.resume(tmp_path / "parts" / "mine", run, rounds="+3")
    assert_same_end(found.folder, expected.folder)


# ------------------------------------------------------------------ the command line


def test_the_command_line_stops_finishes_and_goes_on(umbel: Shell) -> None:
    run = "runs/flacc-seed0"
    printed, _ = umbel("run", "both/flacc.toml", "--until", "accuracy=0", "--max-time", "10m")
    assert "stopped after 1 of 4 rounds: accuracy 0." in " ".join(printed.split())
    assert "finished already: 1 of 4 rounds: accuracy" in umbel("resume", run)[0]
    umbel("report", run)
    assert (
        "Stopped after 1 of 4 rounds: accuracy 0."
        in (umbel.folder / run / "report.html").read_text()
    )
    printed, _ = umbel("resume", run, "--rounds", "+1")
    assert "round 2/2" in printed
    assert "stopped" not in umbel("show", run)[0]
    umbel("resume", run, "--rounds", "4", "--until", "loss=0")
    folder = RunFolder(umbel.folder / run)
    whole = umbel.folder / "whole"
    umbel("run", "both/flacc.toml", "--runs-dir", str(whole))
    assert_same_end(folder, RunFolder(whole / "flacc-seed0"))


def test_the_command_line_ends_a_run_that_was_interrupted(umbel: Shell) -> None:
    umbel("run", "both/flacc.toml")
    path = umbel.folder / "runs" / "flacc-seed1"
    experiment = package.read(umbel.folder / "both" / "flacc.toml").with_seed(1)
    folder = RunFolder.create(path, experiment)
    rounds = package.execute(folder, package.Sources.default())
    assert len(list(islice(rounds, 2))) == 2
    rounds.close()  # type: ignore[attr-defined]
    printed, _ = umbel("finish", str(path))
    assert "stopped after 2 of 4 rounds: it was finished by hand" in " ".join(printed.split())
    assert package.load(path).model(0) is not None
