"""Where results can't be written: it is said before any work, in one line, and nothing is left."""

from __future__ import annotations

import os
import sys
from io import BytesIO, TextIOWrapper
from pathlib import Path

import pytest

from tests.shell import Shell
from umbel.cli import main

RUN = "runs/fedavg-seed0"


@pytest.fixture
def made(umbel: Shell) -> Shell:
    """A finished run, and places that are no files or no folders."""
    umbel("run", "both/fedavg.toml", "--set", "rounds=1")
    (umbel.folder / "folder.png").mkdir()
    os.mkfifo(umbel.folder / "pipe.png")
    (umbel.folder / "file").touch()
    return umbel


def test_a_model_goes_into_a_file_that_can_be_written(made: Shell) -> None:
    export = ("export", RUN, "--to", "safetensors", "--out")
    for place, said in {
        "folder.png": "out: 'folder.png' is not a file that can be written",
        "pipe.png": "out: 'pipe.png' is not a file that can be written",
        "file/model": "out: 'file' is not a folder",
        300 * "a": "'a name of 300 bytes' is not one of at most 255",
    }.items():
        assert said in made.refused(*export, place)
    made(*export, "new/model.safetensors")
    assert sorted(path.name for path in (made.folder / "new").iterdir()) == ["model.safetensors"]


def test_pages_and_figures_go_where_they_can_be_written(made: Shell) -> None:
    assert "--out: 'pipe.png' is not a file" in made.refused("report", RUN, "--out", "pipe.png")
    figures = ("report", RUN, "--figures", "file/figures")
    assert "--figures: 'file' is not a folder" in made.refused(*figures).replace(
        str(made.folder) + "/", ""
    )
    assert not (made.folder / RUN / "report.html").exists()
    plot = ("estimate-clusters", RUN, "--plot", "folder.png")
    assert "--plot: 'folder.png' is not a file that can be written" in made.refused(*plot)


def test_a_reproduction_asks_for_its_folder_before_it_begins(made: Shell) -> None:
    keep = ("reproduce", "cflgp-fig1", "--size", "smoke", "--keep", "file")
    assert "--keep: 'file' is not a folder" in made.refused(*keep)
    kept = made.folder / "kept" / "cflgp-fig1-smoke.json"
    kept.mkdir(parents=True)
    message = made.refused(*keep[:-1], "kept")
    assert "--keep: 'kept/cflgp-fig1-smoke.json' is not a file that can be written" in message
    assert not (made.folder / "runs" / "reproduce-smoke").exists()


def test_a_reproduction_without_its_data_leaves_nothing(umbel: Shell) -> None:
    words = ("reproduce", "lcfl-table2", "--data-dir", str(umbel.folder))
    assert "mnist" in umbel.refused(*words)
    assert not (umbel.folder / "runs").exists()


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="needs a place for no folders")
def test_a_folder_that_cannot_be_made_is_told_before_the_runs(umbel: Shell) -> None:
    words = ("reproduce", "cflgp-fig1", "--size", "smoke", "--keep", "/proc/none")
    assert "--keep: '/proc/none" in umbel.refused(*words)
    assert not (umbel.folder / "runs").exists()


def test_commands_to_go_on_with_are_quoted_where_paths_have_spaces(umbel: Shell) -> None:
    again = ("run", "both/fedavg.toml", "--set", "rounds=1", "--runs-dir", "my runs")
    umbel(*again)
    assert "`umbel show 'my runs/fedavg-seed0'`" in umbel.refused(*again)


def test_names_that_the_encoding_of_the_output_lacks_are_printed_by_their_numbers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    raw = BytesIO()
    monkeypatch.setattr("sys.stdout", TextIOWrapper(raw, encoding="latin-1", write_through=True))
    monkeypatch.setattr("sys.argv", ["umbel", "list", "nothing-\u5317"])
    monkeypatch.setattr("sys.stderr", sys.stdout)
    with pytest.raises(SystemExit, match="2"):
        main()
    assert b"nothing-\\u5317" in raw.getvalue()
