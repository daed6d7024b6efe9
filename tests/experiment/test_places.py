"""Files and modules are found wherever umbel is called, and when all of them are moved together."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.shell import Shell
from umbel import read
from umbel.experiment import toml_file as config
from umbel.experiment.places import whole

EXPERIMENT = """
rounds = 2
[scenario]
name = "table"
path = "visits.csv"
client = "site"
[model]
name = "mlp"
hidden = [4]
[algorithm]
name = "{method}"
"""

METHOD = """
from dataclasses import dataclass
from umbel import FedAvg

@dataclass(frozen=True)
class {name}(FedAvg):
    \"\"\"Averages, as FedAvg does.\"\"\"
"""


@pytest.fixture
def project(umbel: Shell) -> Path:
    """A folder with an experiment and its table; umbel is called in another one."""
    folder, elsewhere = umbel.folder / "project", umbel.folder / "elsewhere"
    folder.mkdir()
    elsewhere.mkdir()
    rng = np.random.default_rng(0)
    lines = [
        f"s{n % 4},{x:.3f},{'yes' if x > 0 else 'no'}" for n, x in enumerate(rng.normal(size=80))
    ]
    (folder / "visits.csv").write_text("\n".join(["site,x,target", *lines]) + "\n")
    (folder / "e.toml").write_text(EXPERIMENT.format(method="fedavg"))
    umbel.monkeypatch.chdir(elsewhere)
    return folder


def test_paths_in_a_file_are_relative_to_it_and_settings_to_the_current_folder(
    umbel: Shell, project: Path
) -> None:
    out, _ = umbel("run", str(project / "e.toml"))
    assert "runs/e-seed0" in out
    shutil.copy(project / "visits.csv", "mine.csv")
    umbel("run", str(project / "e.toml"), "--set", "scenario.path=mine.csv", "--set", "name=mine")
    toml = Path("runs/mine-seed0/experiment.toml").read_text()
    assert 'path = "../../mine.csv"' in toml
    settings = ["--set", "scenario.path=no.csv", "--set", "name=no"]
    _, err = umbel("run", str(project / "e.toml"), *settings, status=2)
    assert f"{Path.cwd() / 'no.csv'}: can't be read" in err


def test_a_schedule_is_a_path_unless_it_is_a_name(project: Path) -> None:
    file = project / "drift.toml"
    text = EXPERIMENT.format(method="fedavg") + '[time]\nschedule = "{}"\n'
    for schedule, expected in (("A", "A"), ("a.csv", str(project / "a.csv")), ("", "")):
        file.write_text(text.replace("{}", schedule))
        experiment = read(file)
        assert experiment.time is not None
        assert experiment.time.schedule == expected
    assert 'schedule = "A"' in config.write(read(file, ["time.schedule=A"]), project)


def test_an_extended_file_keeps_its_own_paths(project: Path) -> None:
    (project / "more").mkdir()
    file = project / "more" / "longer.toml"
    file.write_text('extends = "../e.toml"\nrounds = 9\n')
    assert read(file).scenario == whole(read(project / "e.toml").scenario)
    file.write_text('extends = "../e.toml"\n[scenario]\npath = "visits.csv"\n')
    assert read(file).scenario.path == str(project / "more" / "visits.csv")  # type: ignore[attr-defined]


def test_a_run_is_resumed_from_anywhere_and_after_a_move_with_its_data(
    umbel: Shell, project: Path
) -> None:
    umbel.monkeypatch.chdir(project)
    umbel("run", "e.toml")
    umbel.monkeypatch.chdir(umbel.folder)
    umbel("resume", "project/runs/e-seed0", "--rounds", "+1")
    project.rename(umbel.folder / "moved")
    umbel("resume", "moved/runs/e-seed0", "--rounds", "+1")
    # The run alone: its data are where they were when it was begun.
    (umbel.folder / "moved").rename(project)
    shutil.move(project / "runs" / "e-seed0", umbel.folder / "kept" / "deep" / "e-seed0")
    umbel("resume", "kept/deep/e-seed0", "--rounds", "+1")
    (project / "visits.csv").unlink()
    _, err = umbel("resume", "kept/deep/e-seed0", "--rounds", "+1", status=2)
    assert "/visits.csv: can't be read" in err
    assert err.startswith("umbel: /")


def test_a_module_beside_the_experiment_is_found_by_every_later_command(
    umbel: Shell, project: Path
) -> None:
    (project / "method_of_a_place.py").write_text(METHOD.format(name="Placed"))
    (project / "e.toml").write_text(EXPERIMENT.format(method="method_of_a_place:Placed"))
    path = list(sys.path)
    umbel("run", str(project / "e.toml"))
    for arguments in (
        ["resume", "elsewhere/runs/e-seed0", "--rounds", "+1"],
        ["assign", "elsewhere/runs/e-seed0", "project/visits.csv"],
    ):
        sys.modules.pop("method_of_a_place")
        umbel.monkeypatch.setattr(sys, "path", path)
        umbel.monkeypatch.chdir(umbel.folder)
        umbel(*arguments)


def test_the_data_directory_of_a_run_is_found_again(umbel: Shell, project: Path) -> None:
    (project / "data").mkdir()
    shutil.copy(project / "visits.csv", project / "data" / "visits.csv")
    text = EXPERIMENT.format(method="fedavg").replace("path", "source")
    (project / "e.toml").write_text(text)
    umbel.monkeypatch.delenv("UMBEL_DATA_DIR", raising=False)
    umbel("run", str(project / "e.toml"), "--data-dir", "../project/data")
    umbel.monkeypatch.chdir("/")
    umbel("resume", str(umbel.folder / "elsewhere/runs/e-seed0"), "--rounds", "+1")


def test_an_experiment_is_written_for_the_folder_of_its_file(tmp_path: Path, project: Path) -> None:
    experiment = read(project / "e.toml")
    for place in (project, project / "runs" / "e-seed0", tmp_path):
        place.mkdir(parents=True, exist_ok=True)
        (place / "again.toml").write_text(config.write(experiment, place))
        assert read(place / "again.toml") == experiment
