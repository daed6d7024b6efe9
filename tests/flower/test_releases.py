"""A node of another release takes part, and the server, the node and the record say so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from flwr.app import RecordDict

from tests.flower.attacks import with_config
from tests.flower.test_hostile import EVERYONE, attacked
from umbel.flower import Settings, serve
from umbel.flower.exchange import HELLO
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
