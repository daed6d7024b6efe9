"""Whatever is changed in a file of a run is noticed; files of earlier versions are read as ever."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import umbel as package
from tests.shell import SMALL, Shell
from umbel.algorithms.base import State
from umbel.checks import UsageError
from umbel.files.seals import json_text, json_value
from umbel.folder import checkpoint
from umbel.folder.records_file import RecordLines
from umbel.folder.run_folder import RunFolder
from umbel.run.records import Record
from umbel.run.stopping import Budget

STATE = State(torch.arange(12.0).reshape(2, 6), torch.tensor([0, 1, 0]))
RECORDS = [Record(round=n, loss=0.5 / (n + 1), accuracy=0.1 * n, missing=(n,)) for n in range(4)]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made")
    (path / "ifca.toml").write_text(SMALL.format(name="ifca"))
    folder = RunFolder.create(path / "run", package.read(path / "ifca.toml", ["seed=1"]))
    list(package.execute(folder, package.Sources.default()))
    return folder.path


@pytest.fixture
def run(finished: Path, tmp_path: Path) -> RunFolder:
    return RunFolder(Path(shutil.copytree(finished, tmp_path / "runs" / "ifca-seed1")))


def flips(file: Path, step: int = 1) -> Iterator[str]:
    """The file with one bit of every byte, or every so many, turned; then it is as it was."""
    whole, rng = file.read_bytes(), random.Random(file.name)
    for place in range(rng.randrange(step), len(whole), step):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << rng.randrange(8)
        file.write_bytes(damaged)
        yield f"{file.name}, byte {place}: {bytes(damaged[max(0, place - 9) : place + 9])!r}"
    file.write_bytes(whole)


def accepted(file: Path, look: Callable[[], object], step: int = 1) -> list[str]:
    """The turned bits that nobody noticed."""
    found = []
    for where in flips(file, step):
        try:
            look()
        except UsageError as error:
            if str(file) in str(error) and "\n" not in str(error):
                continue
        found.append(where)
    look()
    return found


def test_every_byte_of_a_checkpoint_counts(tmp_path: Path) -> None:
    file = tmp_path / "checkpoint.safetensors"
    checkpoint.save(file, STATE, 14, {"experiment": {"rounds": 20}})
    assert accepted(file, lambda: checkpoint.load(file, STATE)) == []
    assert accepted(file, lambda: checkpoint.next_round(file), 5) == []
    assert accepted(file, lambda: checkpoint.labels(file), 5) == []
    text = file.read_bytes().replace(b'next_round\\": 14', b'next_round\\": 13')
    file.write_bytes(text)
    with pytest.raises(UsageError, match="its seal does not match"):
        checkpoint.load(file, STATE)


def test_every_byte_of_the_records_counts(tmp_path: Path) -> None:
    lines = RecordLines(tmp_path / "records.jsonl")
    for record in RECORDS:
        lines.append(record)
    assert lines.read() == RECORDS
    appended = lines.file.read_bytes()
    lines.write(RECORDS)
    assert lines.file.read_bytes() == appended

    def look() -> None:
        if len(lines.read()) < len(RECORDS):  # the end of the last line is gone
            raise UsageError(f"{lines.file}: too few")

    assert accepted(lines.file, look, 3) == []


@pytest.mark.parametrize("order", [(0, 1, 2), (1, 0, 2), (0, 2), (0, 1, 1, 2)])
def test_lines_that_are_moved_removed_or_repeated_are_noticed(
    order: tuple[int, ...], tmp_path: Path
) -> None:
    lines = RecordLines(tmp_path / "records.jsonl")
    lines.write(RECORDS[:3])
    written = lines.file.read_bytes().splitlines(keepends=True)
    lines.file.write_bytes(b"".join(written[number] for number in order))
    if order == (0, 1, 2):
        assert lines.read() == RECORDS[:3]
        return
    with pytest.raises(UsageError, match=r"records\.jsonl: damaged: line \d is not the line"):
        lines.read()


def test_a_line_that_was_being_written_is_done_again(tmp_path: Path) -> None:
    lines = RecordLines(tmp_path / "records.jsonl")
    lines.write(RECORDS)
    lines.file.write_bytes(lines.file.read_bytes()[:-5])
    assert lines.read() == RECORDS[:3]


def test_other_readers_find_plain_json(run: RunFolder) -> None:
    lines = [json.loads(line) for line in run.file("records.jsonl").read_text().splitlines()]
    assert [line["round"] for line in lines] == [0, 1, 2, 3]
    assert list(lines[0])[-1] == "seal"
    (session,) = json.loads(run.file("environment.json").read_text())
    assert session["versions"]["umbel"] == package.__version__


@pytest.mark.parametrize("value", [{"a": [1, None, "é"]}, [{"a": 1}, {"a": 2}]])
def test_every_byte_of_a_table_counts(value: object, tmp_path: Path) -> None:
    file = tmp_path / "table.json"
    file.write_text(json_text(value))
    assert json_value(file, lambda found: found) == value

    def look() -> None:
        assert json_value(file, lambda found: found) == value

    assert accepted(file, look) == []


def test_every_part_of_a_finished_run_counts(run: RunFolder) -> None:
    run.set_budget(Budget.of("accuracy=0.9"))

    def models() -> None:
        result = package.load(run.path)
        for cluster in range(result.num_clusters):
            result.model(cluster)

    looks: dict[str, Callable[[], object]] = {
        "experiment.toml": lambda: run.experiment,
        "environment.json": run.sessions.read,
        "budget.json": lambda: run.budget,
        "clusters.csv": run.clients,
        "models/cluster-0.safetensors": models,
        "evidence/round-00003.safetensors": run.evidence.read,
    }
    for name, look in looks.items():
        file = run.file(name)
        assert accepted(file, look, max(1, file.stat().st_size // 150)) == [], name


def test_what_was_changed_in_the_experiment_is_said(run: RunFolder, umbel: Shell) -> None:
    file = run.file("experiment.toml")
    whole = file.read_text()
    file.write_text(whole.replace("clients = 8", "clients = 9").replace("    16,", "    17,"))
    for command in ("show", "resume"):
        message = umbel.refused(command, str(run.path))
        assert "toml: changed after it was written: scenario.clients was 8 and is 9; " in message
        assert "model.hidden was [16] and is [17]; undo that" in message
    printed, _ = umbel("show", str(run.path), "--config")
    assert "seal" not in printed


def test_rounds_that_were_changed_by_hand_are_not_taken_for_damage(
    run: RunFolder, umbel: Shell
) -> None:
    file = run.file("experiment.toml")
    file.write_text(file.read_text().replace("\nrounds = 4", "\nrounds = 9"))
    sealed = file.read_text()
    resume = f"umbel resume {run.path} --rounds N"
    told = f"to change only rounds, undo that and run `{resume}`"
    assert told in umbel.refused("resume", str(run.path))
    file.write_text(run.toml)
    told = f"{file}: rounds: 9, but the run finished after 4; write 4 again; for more rounds"
    for command in (["show"], ["resume"], ["resume", "--rounds", "+1"]):
        assert f"{told}, then run `{resume}`" in umbel.refused(*command, str(run.path))
    file.write_text(sealed.replace("\nrounds = 9", "\nrounds = 4"))
    umbel("resume", str(run.path), "--rounds", "5")
    assert len(run.records()) == run.experiment.rounds == 5


def test_other_clients_under_the_same_settings_are_told(run: RunFolder) -> None:
    there = run.experiment
    federation = there.scenario.build(there.seed, package.Sources.default())
    renamed = replace(federation, names=tuple("abcdefgh"))
    run.file("clusters.csv").unlink()
    for other, said in (
        (renamed, "names of clients: changed"),
        (replace(federation, groups=None), "planted groups: removed"),
    ):
        opened = replace(there.open(package.Sources.default()), federation=other)
        with pytest.raises(UsageError, match=f"of another run: {said}; undo that"):
            list(package.folder.execution.advance(run, opened))


def test_one_label_that_has_changed_is_told(run: RunFolder) -> None:
    there = run.experiment
    federation = there.scenario.build(there.seed, package.Sources.default())
    y = federation.train.y.clone()
    y[1] = (y[1] + 1) % 10
    other = replace(federation, train=replace(federation.train, y=y))
    run.file("clusters.csv").unlink()
    opened = replace(there.open(package.Sources.default()), federation=other)
    with pytest.raises(UsageError, match="of another run: labels: changed; undo that"):
        list(package.folder.execution.advance(run, opened))
