"""New Flower apps, written from the template."""

from __future__ import annotations

import errno
import zipfile
from io import BytesIO
from pathlib import Path

import pytest
from flwr.cli.build import build_fab_from_disk

from umbel.flower.scaffold import FILES, sent_with, write_app
from umbel.runs import durable


def test_an_app_has_the_experiment_that_it_is_given(tmp_path: Path) -> None:
    written = write_app(tmp_path / "my-sites", "rounds = 3\n")
    assert [file.relative_to(tmp_path / "my-sites").as_posix() for file in written] == [
        file.replace("app/", "my_sites/").replace("gitignore", ".gitignore") for file in FILES
    ]
    assert (tmp_path / "my-sites" / "experiment.toml").read_text() == "rounds = 3\n"
    assert "{name}" not in (tmp_path / "my-sites" / "pyproject.toml").read_text()


@pytest.mark.parametrize("number", range(len(FILES)))
def test_a_full_disk_leaves_nothing_of_an_app_so_that_it_can_be_written_again(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Path] = []

    def until_full(file: Path, text: str) -> None:
        if len(done) == number:
            raise OSError(errno.ENOSPC, "No space left on device", str(file))
        durable.write_text(file, text)
        done.append(file)

    folder = tmp_path / "my-sites"
    monkeypatch.setattr("umbel.flower.scaffold.write_text", until_full)
    with pytest.raises(OSError, match="No space left on device"):
        write_app(folder)
    assert not folder.exists()
    monkeypatch.undo()
    assert len(write_app(folder)) == len(FILES)


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


def test_an_app_of_an_earlier_version_is_told_that_it_sends_its_runs(tmp_path: Path) -> None:
    app = tmp_path / "my-sites"
    write_app(app)
    assert sent_with(app / "runs") is None
    assert sent_with(app / "others") == app
    assert sent_with(tmp_path / "runs") is None
    (app / ".gitignore").unlink()
    assert sent_with(app / "runs") == app
