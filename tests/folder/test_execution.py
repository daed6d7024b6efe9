"""A run on disk can be killed at any moment and goes on to the same end."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

import umbel
from tests.processes import ended, start, start_umbel, wait_for_lines
from umbel.algorithms import CFLGP, FLACC, FedEM, PerFedAvg, PFedMe
from umbel.checks import InUseError, UsageError
from umbel.client.work import LocalTraining
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.data.sources import Sources
from umbel.experiment.toml_file import write
from umbel.folder import checkpoint_parts
from umbel.folder.execution import execute
from umbel.folder.run_folder import RunFolder
from umbel.networks import MLP
from umbel.result.run import Experiment, load
from umbel.run.records import Record

EXPERIMENT = Experiment(
    replace(ROTATED_DIGITS, clients=8, examples=(40, 60)),
    MLP((16,)),
    FLACC(LocalTraining(epochs=2, batch_size=10), n_sep=2),
    name="small",
    rounds=10,
    participation=0.75,
)


def begin(path: Path, experiment: Experiment = EXPERIMENT) -> RunFolder:
    return RunFolder.create(path, experiment)


def finish(folder: RunFolder) -> RunFolder:
    list(execute(folder, Sources.default()))
    return folder


def go_on(folder: RunFolder, rounds: int) -> None:
    """Do some more rounds, as many as are asked for."""
    making = execute(folder, Sources.default())
    list(islice(making, rounds))
    making.close()  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> RunFolder:
    """The run without interruption."""
    return finish(begin(tmp_path_factory.mktemp("runs") / "whole"))


def untimed(folder: RunFolder) -> list[Record]:
    return [record.untimed() for record in folder.records()]


def assert_same_end(found: RunFolder, expected: RunFolder) -> None:
    assert found.finished
    assert untimed(found) == untimed(expected)
    for name in ("clusters.csv", "checkpoint.safetensors"):
        assert found.file(name).read_bytes() == expected.file(name).read_bytes()
    for kind in ("models", "evidence"):
        names = sorted(path.name for path in expected.file(kind).iterdir())
        assert sorted(path.name for path in found.file(kind).iterdir()) == names
        for name in names:
            found_file, expected_file = found.file(kind) / name, expected.file(kind) / name
            assert found_file.read_bytes() == expected_file.read_bytes()
    assert not list(found.path.glob("*.partial"))


def assert_goes_on_to(whole: RunFolder, path: Path, experiment: Experiment, after: int) -> None:
    """A run that is stopped after so many rounds ends, once resumed, as the whole one."""
    folder = RunFolder.create(path, experiment)
    rounds = execute(folder, Sources.default())
    assert len(list(islice(rounds, after))) == after
    rounds.close()  # type: ignore[attr-defined]
    assert not folder.finished
    assert_same_end(finish(folder), whole)


def test_what_is_read_lies_in_memory_as_what_was_computed(tmp_path: Path) -> None:
    # Models and their last changes go to clients as they are: their place decides the last bits.
    shipped = umbel.read(umbel.find_experiment("joint-digits"), ["rounds=6", "participation=0.7"])
    whole = finish(begin(tmp_path / "whole", shipped))
    assert_goes_on_to(whole, tmp_path / "parts", shipped, 4)


def test_a_finished_run_holds_all_that_is_needed(whole: RunFolder) -> None:
    records = whole.records()
    assert len(records) == 10
    assert whole.experiment == EXPERIMENT
    rows = whole.file("clusters.csv").read_text().splitlines()
    assert rows[0] == "client,group,cluster,examples,accuracy,loss"
    assert len(rows) == 9
    (session,) = json.loads(whole.file("environment.json").read_text())
    assert session["versions"]["torch"] == torch.__version__
    assert session["seconds"] > 0


def test_a_cluster_of_a_finished_run_is_a_module_ready_to_use(whole: RunFolder) -> None:
    result = load(whole.path)
    run = EXPERIMENT.open(Sources.default())
    assert run.federation.groups is not None
    accuracies = []
    for client, cluster in enumerate(result.clusters.values()):
        x, y = run.federation.test.of(client)
        accuracies.append(float((result.model(cluster)(x).argmax(1) == y).float().mean()))
    assert sum(accuracies) / len(accuracies) == pytest.approx(result.records[-1].accuracy)
    names = load_file(whole.file("models") / "cluster-0.safetensors")
    assert set(names) == {"1.weight", "1.bias", "3.weight", "3.bias"}
    with pytest.raises(UsageError, match=r"cluster: 99 is not a cluster of this run: 0 to"):
        result.model(99)
    with pytest.raises(UsageError, match="cluster: None is not a whole number"):
        result.model(None)  # type: ignore[arg-type]
    assert torch.equal(result.model(np.int64(0))[1].bias, result.model(0)[1].bias)  # type: ignore


def test_of_mixtures_and_personal_models_the_common_ones_are_saved(tmp_path: Path) -> None:
    for algorithm in (FedEM(3, LocalTraining(lr=0.5)), PFedMe(), PerFedAvg()):
        folder = finish(
            begin(tmp_path / type(algorithm).__name__, replace(EXPERIMENT, algorithm=algorithm))
        )
        table = load_file(folder.file("checkpoint.safetensors"))["models"].tolist()
        net = EXPERIMENT.open(Sources.default()).net
        result = load(folder.path)
        for cluster in set(result.clusters.values()):
            assert net.flatten(result.model(cluster)).tolist() in table


@pytest.mark.parametrize("after", [1, 9])
def test_a_run_stopped_between_rounds_goes_on(after: int, tmp_path: Path, whole: RunFolder) -> None:
    folder = begin(tmp_path / "run")
    rounds = execute(folder, Sources.default())
    stopped: Iterator[Record] = islice(rounds, after)
    assert len(list(stopped)) == after
    rounds.close()  # type: ignore[attr-defined]
    assert not folder.finished
    assert_same_end(finish(folder), whole)


def interrupted(path: Path, checkpoint_every: int = 1) -> RunFolder:
    folder = begin(path, replace(EXPERIMENT, checkpoint_every=checkpoint_every))
    go_on(folder, 5)
    return folder


def test_killed_after_the_record_and_before_the_checkpoint(
    tmp_path: Path, whole: RunFolder
) -> None:
    folder = interrupted(tmp_path / "run")
    folder.lines.append(whole.records()[5])
    assert len(folder.records()) == 6
    assert_same_end(finish(folder), whole)


def test_killed_while_writing_a_record(tmp_path: Path, whole: RunFolder) -> None:
    folder = interrupted(tmp_path / "run")
    line = whole.file("records.jsonl").read_text().splitlines()[5]
    with folder.file("records.jsonl").open("a") as records:
        records.write(line[:-10])
    assert_same_end(finish(folder), whole)


def test_killed_while_writing_a_checkpoint(tmp_path: Path, whole: RunFolder) -> None:
    folder = interrupted(tmp_path / "run")
    for name in ("checkpoint.partial", "experiment.partial"):
        folder.file(name).write_bytes(b"half")
    folder.file(".models.0a1b2c3d.partial").mkdir()
    folder.file(".models.0a1b2c3d.partial/models").touch()
    assert_same_end(finish(folder), whole)
    assert {file.name for file in folder.path.iterdir()} == {
        file.name for file in whole.path.iterdir()
    }


def test_killed_between_a_part_and_the_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_parts, "LARGE_BYTES", 1)
    experiment = replace(EXPERIMENT, algorithm=CFLGP(2), checkpoint_every=2)
    folder = begin(tmp_path / "run", experiment)
    go_on(folder, 2)
    parts = folder.file("checkpoint-parts")
    before = sorted(parts.iterdir())
    checkpoint_parts.write(parts, {"features.0": torch.ones(8, 2)}, checkpoint_parts.NO_PARTS)
    assert len(list(parts.iterdir())) == len(before) + 1 > 1
    rounds = execute(folder, Sources.default())
    assert next(rounds).round == 2  # after which no checkpoint is due
    rounds.close()  # type: ignore[attr-defined]
    assert sorted(parts.iterdir()) == before


def test_killed_before_the_first_checkpoint(tmp_path: Path, whole: RunFolder) -> None:
    folder = interrupted(tmp_path / "run")
    folder.file("checkpoint.safetensors").unlink()
    assert_same_end(finish(folder), whole)


def test_killed_while_writing_the_results(tmp_path: Path, whole: RunFolder) -> None:
    folder = finish(begin(tmp_path / "run"))
    folder.file("clusters.csv").unlink()
    (folder.file("models") / "cluster-0.safetensors").unlink()
    (folder.file("models") / "cluster-77.safetensors").write_bytes(b"of a run before")
    assert_same_end(finish(folder), whole)


def test_with_rarer_checkpoints_the_rounds_since_are_done_again(
    tmp_path: Path, whole: RunFolder
) -> None:
    folder = interrupted(tmp_path / "run", checkpoint_every=3)
    assert [record.round for record in execute(folder, Sources.default())] == [3, 4, 5, 6, 7, 8, 9]
    assert_same_end(folder, whole)


def test_damage_is_told_before_anything_is_lost(tmp_path: Path) -> None:
    folder = interrupted(tmp_path / "run")
    kept = folder.file("records.jsonl").read_text()
    folder.file("records.jsonl").write_text("".join(kept.splitlines(keepends=True)[:3]))
    with pytest.raises(UsageError, match=r"records\.jsonl: damaged: 3 whole records, but .* 5"):
        finish(folder)
    folder.file("records.jsonl").write_text(kept)
    folder.file("checkpoint.safetensors").write_bytes(b"nonsense")
    with pytest.raises(UsageError, match=r"checkpoint\.safetensors: not a readable checkpoint"):
        finish(folder)
    assert folder.file("records.jsonl").read_text() == kept


def test_one_process_at_a_time(tmp_path: Path) -> None:
    folder = begin(tmp_path / "run")
    with folder.locked(), pytest.raises(UsageError, match="in use: another process"):
        finish(RunFolder(folder.path))
    assert finish(folder).finished


def test_a_folder_is_not_begun_twice_and_not_made_up(tmp_path: Path) -> None:
    begin(tmp_path / "run")
    assert begin(tmp_path / "run").path == tmp_path / "run"  # no round was done
    rounds = execute(RunFolder(tmp_path / "run"), Sources.default())
    next(rounds)
    rounds.close()  # type: ignore[attr-defined]
    said = (
        r"holds a run already; go on with it by `umbel resume .*` or umbel\.resume\(\".*\"\), or "
    )
    with pytest.raises(UsageError, match=f"{said}choose another folder, on the command line by"):
        begin(tmp_path / "run")
    with pytest.raises(UsageError, match="is not the folder of a run"):
        RunFolder.open(tmp_path)
    with pytest.raises(UsageError, match="not finished; go on with it by"):
        load(tmp_path / "run")


def test_a_finished_run_is_not_run_again(whole: RunFolder) -> None:
    assert list(execute(whole, Sources.default())) == []


# ------------------------------------------------------------------ real processes


@pytest.mark.long
def test_a_process_killed_at_any_moment_goes_on_to_the_same_end(tmp_path: Path) -> None:
    long = replace(EXPERIMENT, rounds=2000)  # it does not come to its end before it is killed
    folder = begin(tmp_path / "killed", long)
    records = folder.file("records.jsonl")
    for count, delay in [(1, 0.0), (9, 0.004), (25, 0.011), (40, 0.019)]:
        process = start(finish, folder)
        wait_for_lines(process, records, count)
        time.sleep(delay)  # another moment within a round each time
        process.kill()
        assert ended(process) == -signal.SIGKILL
        assert not folder.finished
    assert ended(start(go_on, folder, 9)) == 0
    expected = begin(tmp_path / "whole", long)
    go_on(expected, len(folder.records()))
    for run in (folder, expected):
        umbel.finish(run.path)
    assert_same_end(folder, expected)


@pytest.mark.long
def test_a_process_interrupted_from_the_keyboard_says_how_to_go_on(tmp_path: Path) -> None:
    folder = begin(tmp_path / "run", replace(EXPERIMENT, rounds=2000))
    process = start_umbel(tmp_path, "resume", str(folder.path))
    wait_for_lines(process, folder.file("records.jsonl"), 2)
    assert process.pid is not None
    os.kill(process.pid, signal.SIGINT)
    assert ended(process) == 130
    said = (tmp_path / "err").read_text().strip()
    assert said == f"stopped; go on with: umbel resume {folder.path}"
    assert RunFolder.open(folder.path).records()


def test_the_experiment_of_a_folder_can_be_run_elsewhere(tmp_path: Path, whole: RunFolder) -> None:
    copy = tmp_path / "copy.toml"
    copy.write_text(write(whole.experiment))
    again = finish(begin(tmp_path / "again", umbel.read(copy)))
    assert untimed(again) == untimed(whole)


def test_a_run_in_the_first_round_of_another_process_is_found_and_left_to_it(
    tmp_path: Path,
) -> None:
    there = RunFolder.begin(tmp_path, EXPERIMENT)
    with there.locked():
        assert RunFolder.begin(tmp_path, EXPERIMENT) == there
        with pytest.raises(InUseError):
            list(execute(there, Sources.default()))
        with pytest.raises(UsageError, match="another"):
            RunFolder.begin(tmp_path, replace(EXPERIMENT, rounds=EXPERIMENT.most_rounds + 1))
