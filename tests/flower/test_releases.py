"""A node of another release takes part, and the server, the node and the record say so."""

from __future__ import annotations

import json
from pathlib import Path

import flwr
import pytest
import torch
from flwr.app import RecordDict

from tests.flower.attacks import with_config
from tests.flower.grid import MemoryGrid
from tests.flower.test_hostile import EVERYONE, attacked
from umbel.checks import UsageError
from umbel.flower import Settings, serve
from umbel.flower.exchange import HELLO
from umbel.flower.server import TESTED
from umbel.version import __version__

SAME = "releases may compute differently: install the same one everywhere"


def test_a_node_of_another_release_is_told_of_once_with_both(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def older(content: RecordDict) -> RecordDict:
        return with_config(content, "versions", umbel="0.0.9")

    grid = attacked(tmp_path, HELLO, older)
    settings = Settings(8, patience=5, time_limit=5, runs_dir=str(tmp_path / "runs"))
    folder = serve(grid, EVERYONE, settings)
    (said,) = [message for message in caplog.messages if "umbel 0.0.9" in message]
    assert said == f"node 993 has umbel 0.0.9 (here {__version__}): {SAME}"
    assert not folder.records()[0].missing  # it takes part
    noted = json.loads(folder.file("nodes.json").read_text())["versions"]
    assert sorted(noted) == ["node 1000", "node 986", "node 993"]
    assert noted["node 993"].startswith("umbel 0.0.9, python 3.")
    assert f"torch {torch.__version__}, flwr 1." in noted["node 986"]
    (session,) = json.loads(folder.file("environment.json").read_text())
    assert session["versions"]["flwr"].startswith("1.")


@pytest.mark.parametrize(
    ("version", "newer"),
    [("1.41.0", False), ("1.42.7", False), ("1.43.0.dev2", True), ("2.0", True)],
)
def test_a_run_with_a_newer_flower_than_was_tested_says_so(
    version: str,
    newer: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(flwr, "__version__", version)
    settings = Settings(1, patience=0.01, runs_dir=str(tmp_path / "runs"))
    with pytest.raises(UsageError, match="clients: 0 is not"):
        serve(MemoryGrid({}, {}), EVERYONE, settings)
    said = f"flwr {version} is newer than the releases that this umbel was tested with, {TESTED}"
    assert (said in caplog.messages) == newer


def test_the_page_about_flower_names_the_releases_that_were_tested() -> None:
    page = Path(__file__).parents[2] / "docs" / "flower.md"
    assert f"tested with flwr {TESTED}" in page.read_text(encoding="utf-8")
