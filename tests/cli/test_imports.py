"""Looking at a run imports nothing of it; running says what it imports, and can be kept from it."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.shell import SMALL, Shell
from umbel.folder.run_folder import RunFolder

MINE = """
from dataclasses import dataclass
from pathlib import Path

from umbel import FedAvg, SGD

Path("was-here").touch()


@dataclass(frozen=True)
class Mine(FedAvg):
    \"\"\"Averages, as FedAvg does.\"\"\"

    strength: float = 1.0
"""

RUN = "runs/mine-seed0"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a run of a method of somebody's own is to be."""
    return tmp_path_factory.mktemp("made")


@pytest.fixture
def theirs(umbel: Shell, made: Path) -> Shell:
    """A folder with that run, and with its method, which leaves a trace where it is imported."""
    text = SMALL.format(name="mine_of_tests:Mine").replace("rounds = 4", "rounds = 2")
    (umbel.folder / "mine.toml").write_text(text)
    (umbel.folder / "mine_of_tests.py").write_text(MINE)
    if not (made / "runs").is_dir():
        _, errors = umbel("run", "mine.toml")
        assert errors.splitlines() == ["imports 'mine_of_tests:Mine'"]
        shutil.copytree("runs", made / "runs")
        Path("was-here").unlink()
    shutil.copytree(made / "runs", "runs", dirs_exist_ok=True)
    umbel.monkeypatch.delitem(__import__("sys").modules, "mine_of_tests", raising=False)
    return umbel


def test_looking_imports_nothing(theirs: Shell) -> None:
    looks = [
        *(["show", RUN], ["show", RUN, "--config"], ["show", RUN, "--json"], ["show", "runs"]),
        *(["show", "runs", "--csv", "--rows", "rounds"], ["show", "runs", "--at", "1"]),
        *(["report", RUN], ["report", "runs"], ["export", RUN, "--to", "tensorboard"]),
        ["export", RUN, "--to", "torch", "--client", "0"],
    ]
    for words in looks:
        printed, errors = theirs(*words)
        assert "import" not in errors
        if "--json" in words:
            assert '"algorithm": "mine_of_tests:Mine"' in printed
    (theirs.folder / RUN / "clusters.csv").unlink()
    theirs("show", RUN)
    theirs("report", RUN)
    assert not Path("was-here").exists()


def test_what_is_to_be_run_is_said_before_it_is_imported(theirs: Shell) -> None:
    needing = [
        *(["run", "mine.toml", "--runs-dir", "other"], ["compare", ".", "--seeds", "1"]),
        *(["resume", RUN, "--rounds", "3"], ["finish", RUN]),
        *(["estimate-clusters", RUN], ["run", "both/flacc.toml", "--set", "algorithm.name=a:B"]),
    ]
    for words in needing:
        message = theirs.refused(*words, "--no-import")
        assert message.startswith("umbel: --no-import: '")
        assert message.endswith("' would have to be imported")
    assert not Path("was-here").exists()
    assert not Path("other").exists()
    _, errors = theirs("resume", RUN, "--rounds", "3")
    assert errors.splitlines()[0] == "imports 'mine_of_tests:Mine'"
    assert Path("was-here").exists()
    assert len(RunFolder.open(RUN).records()) == 3
    theirs("run", "both/flacc.toml", "--set", "rounds=1", "--no-import")
