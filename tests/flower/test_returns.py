"""Nodes that come back under the same number, with a registered key, may have other clients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.algorithms.test_contract import LOCAL
from tests.flower.grid import MemoryGrid
from tests.flower.small import SMALL, clients, engine_of, having, site
from umbel.algorithms import FedAvg
from umbel.data.federation import Federation
from umbel.flower import client_app
from umbel.flower.discovery import Meeting
from umbel.flower.exchange import HELLO
from umbel.flower.expected_form import Expectation


def leaves(grid: MemoryGrid, meeting: Meeting, node: int) -> None:
    """The node disconnects, and the server notices."""
    grid.fate[node] = "gone"
    meeting.look_around()


def returns(grid: MemoryGrid, folder: Path, node: int, has: Federation, fate: str = "") -> None:
    """The node connects again, with these clients."""
    grid.apps = {**grid.apps, node: client_app(folder / "experiment.toml", having(has))}
    del grid.fate[node]
    if fate:
        grid.fate[node] = fate


def test_a_node_that_comes_back_is_asked_again_which_clients_it_has(tmp_path: Path) -> None:
    grid = site(tmp_path, clients(["a"]), clients(["b"]))
    meeting = Meeting(grid, 5.0)
    assert meeting.gather(2, 5.0) == {"a": 1, "b": 2}
    leaves(grid, meeting, 2)
    returns(grid, tmp_path, 2, clients(["b", "c"]))
    assert meeting.look_around() == {"a": 1, "b": 2, "c": 2}
    asked = grid.asked.count(HELLO)
    meeting.look_around()
    assert grid.asked.count(HELLO) == asked == 3


def narrow(name: str) -> Federation:
    """A client whose inputs lack a column."""
    made = clients([name])
    shards = [(split.x[:, 1:].numpy(), split.y.numpy()) for split in (made.train, made.test)]
    return Federation.from_arrays(shards[:1], shards[1:], names=[name], num_classes=10)


def test_files_of_another_form_may_be_mended_while_clients_are_waited_for(
    tmp_path: Path,
) -> None:
    grid = site(tmp_path, clients(["a"]), narrow("b"))
    meeting = Meeting(grid, 5.0, expect=Expectation(SMALL, (64,)))
    assert meeting.look_around() == {"a": 1}
    assert meeting.left_out == {2}
    leaves(grid, meeting, 2)
    returns(grid, tmp_path, 2, clients(["b"]))
    meeting.greetings.clear()  # as if the time until the next greeting were over
    assert meeting.gather(2, 5.0) == {"a": 1, "b": 2}
    assert meeting.left_out == set()
    assert meeting.owners.refused == {}


def test_clients_that_moved_to_a_node_that_was_started_again_take_part(tmp_path: Path) -> None:
    grid = site(tmp_path, clients(["a"]), clients(["b"]))
    engine = engine_of(grid, wanted=2, release_after=0.0)
    method = replace(SMALL, algorithm=FedAvg(LOCAL), participation=1.0)
    rounds = method.run(clients(["a", "b"]), engine).rounds(4)
    assert next(rounds)[1].missing == ()
    grid.fate |= {1: "gone", 2: "gone"}
    engine.meeting.look_around(["a", "b"])
    returns(grid, tmp_path, 1, clients(["a", "b"]))
    assert next(rounds)[1].missing == ()
    assert engine.nodes == {"a": 1, "b": 1}
