"""Somebody else's folder of a run may hold links: nothing outside the folder is changed by them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import umbel as package
from tests.shell import SMALL, Shell
from umbel.folder.run_folder import RunFolder

RUN = "runs/ifca-seed0"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two rounds."""
    path = tmp_path_factory.mktemp("made")
    (path / "ifca.toml").write_text(SMALL.format(name="ifca"))
    experiment = package.read(path / "ifca.toml", ["rounds=2"])
    folder = RunFolder.create(path / "run", experiment)
    list(package.execute(folder, package.Sources.default()))
    return folder.path


@pytest.fixture
def run(umbel: Shell, finished: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(finished, umbel.folder / RUN))


@pytest.fixture
def mine(umbel: Shell) -> Path:
    """A folder with a file that is nobody's business."""
    folder = umbel.folder / "mine"
    folder.mkdir()
    (folder / "diary.txt").write_text("dear diary")
    (folder / "events.out.tfevents.1").write_text("of another run")
    return folder


def held(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir()}


def test_a_run_does_not_go_on_in_folders_that_are_elsewhere(
    run: Path, mine: Path, umbel: Shell
) -> None:
    before = held(mine)
    shutil.rmtree(run / "models")
    (run / "clusters.csv").unlink()
    (run / "models").symlink_to(mine)
    message = umbel.refused("resume", RUN, "--rounds", "3")
    assert f"{RUN}/models: a link" in message
    assert held(mine) == before
