"""Killed, or without room, at any change of a file, a run goes on to the same end."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
from itertools import islice
from pathlib import Path
from unittest.mock import patch

import pytest

import umbel as package
from tests.disk import GROWING, Disk, Fault
from tests.processes import ended, start
from tests.shell import SMALL
from umbel.algorithms import CFLGP
from umbel.data.sources import Sources
from umbel.files.atomic import write_text
from umbel.folder import checkpoint_parts
from umbel.folder.execution import advance, execute, opened
from umbel.folder.run_folder import RunFolder
from umbel.run.records import Record
from umbel.run.rounds import Rounds

FILES = ("clusters.csv", "clusters.seal", "checkpoint.safetensors", "models/cluster-0.safetensors")


def attempts(begun: Path, to: Path, fault: Fault) -> None:
    """Go on with copies of a run, of which the n-th fails at its n-th change; the first, never.

    Each in a process of its own, forked off this one, which has loaded all that is needed.
    """
    checkpoint_parts.LARGE_BYTES = 1
    run = opened(RunFolder(begun), Sources.default())[0]
    list(run.rounds(1))  # what is loaded late is loaded
    at = 0
    while at == 0 or at <= len(json.loads((to / "0.json").read_text())[0]):
        folder = RunFolder(Path(shutil.copytree(begun, to / f"{at}")))
        process = os.fork()
        if process == 0:
            noted = attempt(folder, run, Disk(at or None, fault))
            (to / f"{at}.json").write_text(json.dumps(noted))
            os._exit(0)
        _, status = os.waitpid(process, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        assert killed if fault == "kill" and at else status == 0, at
        at += 1


def attempt(folder: RunFolder, run: Rounds, disk: Disk) -> tuple[list[str], list[object] | None]:
    """What was changed, and why not more."""
    disk.install()
    try:
        list(advance(folder, run))
        return disk.calls, None
    except OSError as error:
        return disk.calls, [error.errno, error.filename]
    finally:
        disk.at = None


@pytest.fixture(scope="module", params=[pytest.param("ifca", marks=pytest.mark.thorough), "cfl-gp"])
def begun(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of which one round is left; CFL-GP's has parts beside its checkpoint."""
    path = tmp_path_factory.mktemp("begun")
    (path / "some.toml").write_text(SMALL.format(name=request.param))
    experiment = package.read(path / "some.toml", ["rounds=2", "algorithm.num_clusters=2"])
    folder = RunFolder.create(path / "run", experiment)
    rounds = execute(folder, Sources.default())
    with patch.object(checkpoint_parts, "LARGE_BYTES", 1):
        list(islice(rounds, 1))
    rounds.close()  # type: ignore[attr-defined]
    return folder.path


def end_of(folder: RunFolder) -> tuple[list[Record], list[bytes], list[str]]:
    """What a finished run came to, and its files."""
    files = (str(file.relative_to(folder.path)) for file in folder.path.rglob("*"))
    names = sorted(name for name in files if not name.endswith(".partial"))
    contents = [folder.file(name).read_bytes() for name in FILES]
    return [record.untimed() for record in folder.records()], contents, names


@pytest.mark.long
@pytest.mark.parametrize("fault", ["kill", pytest.param("full", marks=pytest.mark.thorough)])
def test_a_run_goes_on_from_every_change_of_its_last_round(
    fault: Fault, begun: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkpoint_parts, "LARGE_BYTES", 1)
    assert ended(start(attempts, begun, tmp_path, fault)) == 0
    run, whole = opened(RunFolder(begun), Sources.default())[0], RunFolder(tmp_path / "0")
    expected = end_of(whole)
    calls, _ = json.loads((tmp_path / "0.json").read_text())
    has_parts = isinstance(whole.experiment.algorithm, CFLGP)
    assert whole.file("checkpoint-parts").is_dir() == has_parts
    assert {*calls} >= {"open", "write", "save_file", "fsync", "replace", "mkdir"}
    for at, call in enumerate(calls, 1):
        folder = RunFolder(tmp_path / f"{at}")
        if fault == "full":
            _, said = json.loads((tmp_path / f"{at}.json").read_text())
            if said is None:  # nothing more needed room
                assert not {*calls[at - 1 :]} & {*GROWING}, (at, call)
            else:
                assert said[0] == errno.ENOSPC
                assert str(folder.path) in said[1]
            assert list(folder.path.rglob("*.partial")) == []
        folder.records()  # whoever looks finds no damage
        list(advance(folder, run))
        assert end_of(folder) == expected, (at, call)


def test_a_file_is_on_disk_before_it_takes_its_place_and_then_its_folder_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, real_replace = tmp_path / "a.json", Path.replace
    file.write_text("old")
    noted: list[tuple[str, str, str]] = []  # what is done, to which, and what the file holds then

    def syncing(number: int) -> None:
        held = {path.stat().st_ino: path for path in (tmp_path, *tmp_path.rglob("*"))}
        path = held[os.fstat(number).st_ino]
        assert path == tmp_path or path.read_text() == "new"
        noted.append(("sync", path.name, file.read_text()))

    def replacing(path: Path, target: Path) -> Path:
        noted.append(("replace", path.name, file.read_text()))
        return real_replace(path, target)

    monkeypatch.setattr(os, "fsync", syncing)
    monkeypatch.setattr(Path, "replace", replacing)
    write_text(file, "new")
    assert noted == [
        ("sync", "partial", "old"),
        ("replace", "partial", "old"),
        ("sync", tmp_path.name, "new"),
    ]
