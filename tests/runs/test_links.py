"""Somebody else's folder of a run may hold links: nothing outside the folder is changed by them."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import umbel as package
from tests.shell import SMALL, Shell
from umbel.files.atomic import write_text
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


@pytest.mark.parametrize("name", ["evidence", "models"])
@pytest.mark.parametrize("command", [["resume", "--rounds", "3"], ["finish"]])
def test_a_run_does_not_go_on_in_folders_that_are_elsewhere(
    name: str, command: list[str], run: Path, mine: Path, umbel: Shell
) -> None:
    before = held(mine)
    shutil.rmtree(run / name)
    (run / "clusters.csv").unlink()
    (run / name).symlink_to(mine)
    first, *options = command
    message = umbel.refused(first, RUN, *options)
    assert f"{RUN}/{name}: a link" in message
    assert held(mine) == before


def test_a_lock_that_is_elsewhere_is_not_taken(run: Path, mine: Path, umbel: Shell) -> None:
    (run / ".lock").unlink(missing_ok=True)
    (run / ".lock").symlink_to(mine / "diary.txt")
    assert f"{RUN}/.lock: a link" in umbel.refused("resume", RUN, "--rounds", "3")
    assert (mine / "diary.txt").read_text() == "dear diary"


def test_what_is_half_written_is_not_written_elsewhere(
    tmp_path: Path, mine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("secrets.token_hex", lambda _: "01234567")  # nobody can know it before
    (tmp_path / ".diary.txt.01234567.partial").symlink_to(mine)
    with pytest.raises(FileExistsError):
        write_text(tmp_path / "diary.txt", "new")
    assert (mine / "diary.txt").read_text() == "dear diary"


@pytest.mark.usefixtures("run")
@pytest.mark.parametrize("runs", [RUN, "runs"])
def test_a_page_is_not_written_elsewhere(runs: str, mine: Path, umbel: Shell) -> None:
    pytest.importorskip("plotly")
    page = umbel.folder / runs / "report.html"
    page.symlink_to(mine / "diary.txt")
    assert f"{runs}/report.html: a link" in umbel.refused("report", runs)
    assert (mine / "diary.txt").read_text() == "dear diary"
    umbel("report", runs, "--out", f"{runs}/report.html")  # who says where means it
    assert (mine / "diary.txt").read_text() != "dear diary"


@pytest.mark.parametrize(
    ("link", "options"),
    [
        ("exported", ["--to", "safetensors", "--cluster", "0"]),
        ("exported/cluster-0.safetensors", ["--to", "safetensors", "--cluster", "0"]),
        ("tensorboard", ["--to", "tensorboard"]),
    ],
)
def test_nothing_is_exported_elsewhere(
    link: str, options: list[str], run: Path, mine: Path, umbel: Shell
) -> None:
    if "tensorboard" in options:
        pytest.importorskip("torch.utils.tensorboard")
    before = held(mine)
    (run / link).parent.mkdir(exist_ok=True)
    (run / link).symlink_to(mine / "diary.txt" if "/" in link else mine)
    assert f"{RUN}/{link}: a link" in umbel.refused("export", RUN, *options)
    assert held(mine) == before
