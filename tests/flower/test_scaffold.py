"""New Flower apps, written from the template."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from umbel.flower.scaffold import FILES, write_app
from umbel.runs import durable


def test_an_app_has_the_experiment_that_it_is_given(tmp_path: Path) -> None:
    written = write_app(tmp_path / "my-sites", "rounds = 3\n")
    assert [file.relative_to(tmp_path / "my-sites").as_posix() for file in written] == [
        file.replace("app/", "my_sites/") for file in FILES
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
