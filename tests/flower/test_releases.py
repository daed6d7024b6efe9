"""A node of another release takes part, and the server, the node and the record say so."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from flwr.app import ConfigRecord, Message, RecordDict

from tests.flower.attacks import with_config
from tests.flower.grid import MemoryGrid
from tests.flower.small import clients, site
from tests.flower.test_hostile import EVERYONE, attacked
from umbel.flower import Settings, serve
from umbel.flower.discovery import Meeting
from umbel.flower.errors import RefusedError
from umbel.flower.exchange import HELLO
from umbel.flower.handshake import versions_in
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


class OlderServer(MemoryGrid):
    """A server that greets as one of an older release."""

    def _push(self, message: Message) -> str:
        message.content = with_config(message.content, "versions", umbel="0.0.9")
        return super()._push(message)


def test_a_node_says_that_its_server_is_of_another_release(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    plain = site(tmp_path, clients(["a"]))
    assert Meeting(OlderServer(plain.apps, plain.configs), 5.0).gather(1, 5.0) == {"a": 1}
    assert f"the server has umbel 0.0.9 (here {__version__}): {SAME}" in caplog.messages


@pytest.mark.parametrize("told", [{"umbel": 3}, {"umbel": "a\x1b[2J"}, {"torch": "x" * 300}])
def test_a_server_refuses_versions_that_are_none(told: dict[str, Any]) -> None:
    with pytest.raises(RefusedError):
        versions_in(RecordDict({"versions": ConfigRecord(told)}))
