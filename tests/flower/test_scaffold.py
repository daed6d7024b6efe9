"""New Flower apps, written from the template."""

from __future__ import annotations

import runpy
import tomllib
import zipfile
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict
from flwr.cli.build import build_fab_from_disk

from tests.flower.small import SMALL, grid_of
from umbel.checks import UsageError
from umbel.flower.scaffold import FILES, write_app
from umbel.flower.server import Settings, serve


def test_an_app_has_the_experiment_that_it_is_given(tmp_path: Path) -> None:
    written = write_app(tmp_path / "my-sites", "rounds = 3\n")
    assert [file.relative_to(tmp_path / "my-sites").as_posix() for file in written] == [
        file.replace("app/", "my_sites/").replace("gitignore", ".gitignore") for file in FILES
    ]
    assert (tmp_path / "my-sites" / "experiment.toml").read_text() == "rounds = 3\n"
    assert "{name}" not in (tmp_path / "my-sites" / "pyproject.toml").read_text()


def test_the_text_of_an_experiment_is_not_a_template(tmp_path: Path) -> None:
    text = 'description = "{name} of {package} in {runs_dir}"\n'
    write_app(tmp_path / "my-sites", text)
    assert (tmp_path / "my-sites" / "experiment.toml").read_text() == text


def test_an_app_names_no_folder_so_that_it_can_be_moved(tmp_path: Path) -> None:
    app = tmp_path / 'a "quoted" one' / "my-sites"
    for file in write_app(app):
        assert str(tmp_path) not in file.read_text(encoding="utf-8")
    settings = tomllib.loads((app / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["tool"]["flwr"]["app"]["config"]["runs-dir"] == "runs"


def test_a_runs_dir_that_cannot_be_made_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    where = tmp_path / "file" / "runs"
    with pytest.raises(UsageError, match=r"^runs-dir: '.*/file/runs' is not a folder to write in"):
        serve(grid_of(SMALL, tmp_path), SMALL, Settings(8, runs_dir=str(where)))


@pytest.mark.filterwarnings("ignore:GitWildMatchPattern:DeprecationWarning")  # in Flower
def test_what_nodes_get_has_nothing_of_the_runs(tmp_path: Path) -> None:
    app, runs = tmp_path / "my-sites", tmp_path / "my-sites" / "runs" / "my-sites-seed0"
    write_app(app)
    runs.mkdir(parents=True)
    (runs / "clients.json").write_text('{"names": ["Anna"]}')
    (runs / "records.jsonl").write_text("{}")
    with zipfile.ZipFile(BytesIO(build_fab_from_disk(app))) as sent:
        assert "experiment.toml" in sent.namelist()
        assert not [name for name in sent.namelist() if "runs" in name]


@pytest.mark.parametrize(
    ("targets", "settings", "classes"),
    [
        ([0.5, 1.5, 2.5, 0.0], {}, None),
        ([0, 1, 2, 0], {}, 3),
        ([0, 1, 2, 0], {"classes": 5}, 5),
    ],
)
def test_a_new_app_reads_numbers_and_labels_of_any_number_of_classes(
    targets: list[float], settings: dict[str, int], classes: int | None, tmp_path: Path
) -> None:
    np.savez(tmp_path / "a.npz", x=np.ones((4, 3), dtype=np.float32), y=np.array(targets))
    (app,) = (file for file in write_app(tmp_path / "my-sites") if file.name == "client.py")
    context = Context(1, 1, {"data": str(tmp_path), **settings}, RecordDict(), {})
    federation = runpy.run_path(str(app))["load"](context, SMALL)
    assert (federation.names, federation.num_classes) == (("a",), classes)


@pytest.mark.parametrize("name", ["site", "torch"])
def test_an_app_that_would_hide_a_library_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=f"folder: '{name}' is not a name for the app"):
        write_app(tmp_path / name)
    assert not (tmp_path / name).exists()
