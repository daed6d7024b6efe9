"""A finished run whose files were damaged: every reader says so, and which file."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors import safe_open

import umbel as package
from tests.shell import SMALL, Shell
from umbel.checks import UsageError
from umbel.files.seals import json_text
from umbel.folder import checkpoint_parts
from umbel.folder.run_folder import RunFolder
from umbel.folder.tensor_files import tensors_in, write

RUN = "runs/ifca-seed0"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four rounds, nothing amiss."""
    path = tmp_path_factory.mktemp("made")
    (path / "ifca.toml").write_text(SMALL.format(name="ifca"))
    folder = RunFolder.create(path / "run", package.read(path / "ifca.toml"))
    list(package.execute(folder, package.Sources.default()))
    return folder.path


@pytest.fixture
def run(umbel: Shell, finished: Path) -> Path:
    """A copy of it to damage."""
    return Path(shutil.copytree(finished, umbel.folder / RUN))


@pytest.mark.parametrize("kept", [None, 3])
def test_a_finished_run_without_all_its_records_is_told(
    kept: int | None, run: Path, umbel: Shell
) -> None:
    file = run / "records.jsonl"
    lines = file.read_text().splitlines(keepends=True)
    file.unlink()
    if kept is not None:
        file.write_bytes("".join(lines[:kept]).encode() + b"\xff garbage {")
    wanted = f"records.jsonl: damaged: {kept or 0} whole records instead of 4"
    looks = ["show"], ["show", "--at", "2"], ["show", "--reach", "purity=0.9"], ["resume"]
    for command, *options in looks:
        assert wanted in umbel.refused(command, RUN, *options)
    assert wanted in umbel.refused("show", "runs")
    assert "holds a finished run" in umbel.refused("run", "both/flacc.toml", "--set", "name=ifca")


@pytest.mark.parametrize(
    "garbage",
    [
        b"",
        b"client,group,cluster,examples,accuracy,loss\n0,0,zero,9,0.5,0.5\n",
        b"client,group,cluster,examples,accuracy,loss\n0,0,0,9,0.5\n",
    ],
)
@pytest.mark.usefixtures("newcomers")
def test_damaged_rows_of_the_clients_are_told(garbage: bytes, run: Path, umbel: Shell) -> None:
    (run / "clusters.csv").write_bytes(garbage)
    assert "clusters.csv: damaged: its seal in clusters.seal does not" in umbel.refused("show", RUN)
    (run / "clusters.seal").unlink()  # an earlier version wrote none
    for command in ["show", RUN], ["assign", RUN, "newcomers"], ["show", "runs"]:
        assert "clusters.csv: damaged: not a row client,group," in umbel.refused(*command)


def test_a_missing_model_is_told_from_a_cluster_that_is_none(run: Path) -> None:
    result = package.load(run)
    last = max(result.clusters.values())
    file = run / "models" / f"cluster-{last}.safetensors"
    file.unlink()
    with pytest.raises(UsageError, match=rf"{file.name}: missing; remove clusters.csv, and `umbel"):
        result.model(last)
    for cluster in (-1, last + 1):
        known = f"cluster: {cluster} is not a cluster of this run: 0 to {last}"
        with pytest.raises(UsageError, match=known):
            result.model(cluster)


def test_results_that_were_lost_are_written_again(run: Path, finished: Path, umbel: Shell) -> None:
    (run / "clusters.csv").unlink()
    shutil.rmtree(run / "models")
    umbel("resume", RUN)
    for file in ("clusters.csv", "models/cluster-0.safetensors"):
        assert (run / file).read_bytes() == (finished / file).read_bytes()


def test_damaged_evidence_of_the_last_round_does_not_keep_a_run_from_going_on(run: Path) -> None:
    file = run / "evidence" / "round-00003.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    assert len(package.resume(run, rounds="+1").records) == 5
    assert [each.round for each in RunFolder(run).evidence.read()] == [0, 1, 2, 4]


@pytest.mark.usefixtures("run")
def test_newcomers_that_are_no_numbers_are_refused(umbel: Shell, newcomers: Path) -> None:
    np.savez(newcomers / "odd.npz", x=np.full((3, 1, 8, 8), "pixel"), y=np.zeros(3, dtype=int))
    message = umbel.refused("assign", RUN, "newcomers/odd.npz")
    assert "client odd: x: '<U5' is not a type of numbers" in message
    (newcomers / "odd.npz").write_bytes(b"garbage")
    message = umbel.refused("assign", RUN, "newcomers/odd.npz")
    assert message.endswith("odd.npz: not a .npz file of plain arrays, as numpy.savez writes them")
    assert "there is no such folder or file" in umbel.refused("assign", RUN, "gone")
    assert "both: holds no .npz files" in umbel.refused("assign", RUN, "both")


def test_what_is_damaged_is_told_before_a_round_is_done(run: Path, umbel: Shell) -> None:
    (run / "environment.json").write_text('"yesterday"')
    before = {file: file.read_bytes() for file in run.rglob("*.*") if file.is_file()}
    message = umbel.refused("resume", RUN, "--rounds", "6")
    assert f"{RUN}/environment.json: damaged" in message
    kept = [file for file in before if file.name in ("records.jsonl", "checkpoint.safetensors")]
    assert all(file.read_bytes() == before[file] for file in kept)
    assert (run / "clusters.csv").is_file()


@pytest.fixture
def interrupted(umbel: Shell, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run of four rounds, two of which are done, with parts beside its checkpoint."""
    monkeypatch.setattr(checkpoint_parts, "LARGE_BYTES", 1)
    (umbel.folder / "cfl-gp.toml").write_text(SMALL.format(name="cfl-gp"))
    folder = RunFolder.create(umbel.folder / "run", package.read(umbel.folder / "cfl-gp.toml"))
    rounds = package.execute(folder, package.Sources.default())
    assert len(list(islice(rounds, 2))) == 2
    rounds.close()  # type: ignore[attr-defined]
    return folder.path


@pytest.mark.parametrize(
    ("damaged", "message"),
    [
        ("checkpoint-parts/*", "can't be read: No such file"),
        ("checkpoint.safetensors", "not a readable checkpoint"),
        ("records.jsonl", "damaged: 0 whole records, but the checkpoint comes after 2"),
        ("environment.json", "damaged"),
    ],
)
@pytest.mark.parametrize("command", ["finish", "resume --rounds 6"])
def test_what_a_run_can_not_go_on_from_is_told_before_anything_is_written(
    damaged: str, message: str, command: str, interrupted: Path, umbel: Shell
) -> None:
    file = min(interrupted.glob(damaged))
    file.unlink()
    if "*" not in damaged:
        file.write_text("")
    before = contents(interrupted)
    name, *options = command.split()
    told = umbel.refused(name, str(interrupted), *options)
    assert told.startswith(f"umbel: {file}: {message}")
    assert contents(interrupted) == before


@pytest.mark.parametrize(
    ("name", "table", "message"),
    [
        ("stopped.json", {"rounds": 9, "why": ""}, "rounds: 9 is not at most 4"),
        ("budget.json", {"until": [["accuracy", 7]], "max_seconds": None}, "is not in 0 to 1"),
    ],
)
def test_values_of_tables_that_can_not_be_are_told(
    name: str, table: dict[str, object], message: str, interrupted: Path, umbel: Shell
) -> None:
    (interrupted / name).write_text(json_text(table))
    before = (interrupted / "records.jsonl").read_bytes()
    told = umbel.refused("resume", str(interrupted))
    assert f"{interrupted / name}: damaged: " in told
    assert message in told
    assert (interrupted / "records.jsonl").read_bytes() == before


def contents(folder: Path) -> dict[Path, bytes]:
    """All files of a folder, and what they hold."""
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("name", ["losses", "clients"])
def test_evidence_of_another_shape_is_told(name: str, run: Path, umbel: Shell) -> None:
    file = max((run / "evidence").iterdir())
    with safe_open(file, framework="pt") as opened:
        tensors = {**tensors_in(opened), name: torch.zeros(9)}
    write(file, tensors, {"apart": False})  # with a seal that is right
    assert f"{file.name}: damaged: not evidence of a method; remove it" in umbel.refused(
        "report", RUN
    )
