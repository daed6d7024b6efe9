"""Server and nodes have the same frozen values, or do not work together."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from flwr.app import Message

from tests.algorithms.test_contract import LOCAL
from tests.flower.grid import MemoryGrid
from tests.flower.small import SMALL, grid_of, last_state
from tests.frozen import Pretrained, write_trunk
from umbel.algorithms import FedAvg
from umbel.flower import messages
from umbel.flower.client_owners import Owners
from umbel.flower.discovery import Meeting
from umbel.flower.errors import RefusedError
from umbel.flower.exchange import HELLO, WORK
from umbel.flower.expected_form import Expectation
from umbel.flower.handshake import greet, site_in
from umbel.result.run import Experiment
from umbel.testing import assert_same_state

HEAD = 8 * 10 + 10


def frozen(folder: Path, seed: int = 0) -> Experiment:
    folder.mkdir(exist_ok=True)
    file = write_trunk(folder / "trunk.safetensors", 64, seed)
    model = Pretrained(file=str(file))
    return replace(SMALL, model=model, algorithm=FedAvg(LOCAL), participation=1.0, rounds=2)


def mixed(tmp_path: Path) -> tuple[Experiment, MemoryGrid]:
    """Three nodes, of which the second has another backbone than the server."""
    ours = frozen(tmp_path / "ours")
    grid, other = grid_of(ours, tmp_path / "a"), grid_of(frozen(tmp_path / "b", 1), tmp_path / "c")
    second = list(grid.apps)[1]
    grid.apps = {**grid.apps, second: other.apps[second]}
    return ours, grid


def test_messages_hold_what_trains_alone_and_results_are_those_of_one_process(
    tmp_path: Path,
) -> None:
    experiment = frozen(tmp_path / "ours")
    grid = grid_of(experiment, tmp_path)
    assert_same_state(last_state(experiment, grid), last_state(experiment, None))
    requests = grid.asked.count(WORK)
    models = 4 * HEAD * requests
    assert requests == 2 * 2 * 3  # two rounds of training and evaluation, at three nodes
    assert models < grid.bytes_down < models + 1_500 * len(grid.asked)


def test_a_node_with_another_backbone_is_left_out_with_the_reason(tmp_path: Path) -> None:
    experiment, grid = mixed(tmp_path)
    owners = Owners()
    meeting = Meeting(grid, 5.0, expect=Expectation(experiment), owners=owners)
    assert sorted(meeting.gather(5, 0.6)) == ["0", "2", "3", "5", "6"]
    assert meeting.left_out == {993}
    said = owners.refused["node 993"]
    assert said.startswith("left out: frozen values of digest ")
    assert "server and nodes need the same files of the backbone" in said


def test_a_node_refuses_work_on_another_backbone(tmp_path: Path) -> None:
    grid = grid_of(frozen(tmp_path / "ours"), tmp_path)
    node = next(iter(grid.apps))
    (name,) = grid.push_messages([Message(greet(), node, HELLO)])
    (hello,) = grid.pull_messages([name])
    client = site_in(hello.content).clients[0]
    asked = messages.Asked(LOCAL, [client], [1], {"theta": torch.zeros(HEAD)}, {}, {}, (), "0" * 64)
    (name,) = grid.push_messages([Message(messages.ask(asked), node, WORK)])
    replies = list(grid.pull_messages([name]))
    with pytest.raises(RefusedError, match=r"frozen values of digest .*, and this node's have"):
        messages.answer_in(replies[0].content, ["update"], 10**6)
