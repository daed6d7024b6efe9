"""What is in a run's folder before its first round is of the server that does this round."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from tests.algorithms.test_contract import LOCAL
from tests.flower.grid import MemoryGrid
from tests.flower.small import SMALL, clients, grid_of, site
from umbel.algorithms import FedAvg
from umbel.checks import InUseError, UsageError
from umbel.engines.replies.guarded import QuorumError
from umbel.flower import Settings, serve
from umbel.folder.execution import execute
from umbel.folder.run_folder import RunFolder

ALL = replace(SMALL, algorithm=FedAvg(LOCAL), participation=1.0, rounds=2)


@dataclass
class Meanwhile(MemoryGrid):
    """Something else happens once, while the nodes are greeted."""

    happens: Callable[[], object] = field(default=lambda: None)

    def push_messages(self, messages: Any) -> list[str]:
        happens, self.happens = self.happens, lambda: None
        happens()
        return super().push_messages(messages)


def settings_in(folder: Path, number: int) -> Settings:
    return Settings(number, patience=0.3, time_limit=2.0, runs_dir=str(folder / "runs"))


def contents(folder: RunFolder) -> dict[str, bytes]:
    files = (file for file in folder.path.rglob("*") if file.is_file())
    return {str(file): file.read_bytes() for file in files}


@pytest.mark.parametrize(("rounds", "how"), [(1, "umbel resume"), (None, "umbel show")])
def test_a_run_in_one_process_is_left_as_it_is(
    tmp_path: Path, rounds: int | None, how: str
) -> None:
    folder = RunFolder.create(tmp_path / "runs" / "small-seed0", ALL)
    begun = execute(folder)
    assert list(islice(begun, rounds))
    begun.close()  # type: ignore[attr-defined]
    before = contents(folder)
    with pytest.raises(UsageError, match=f"a run that was not begun over Flower; `{how}"):
        serve(grid_of(ALL, tmp_path / "site"), ALL, settings_in(tmp_path, 8))
    assert contents(folder) == before
    assert len([*execute(folder)]) == (0 if rounds is None else 1)


def test_nodes_that_were_waited_for_in_vain_do_not_keep_a_run_from_one_process(
    tmp_path: Path,
) -> None:
    with pytest.raises(UsageError, match="clients: 8 is not at least 9"):
        serve(grid_of(ALL, tmp_path / "site"), ALL, settings_in(tmp_path, 9))
    folder = RunFolder(tmp_path / "runs" / "small-seed0")
    assert not {"nodes.json", "clients.json"} & {file.name for file in folder.path.iterdir()}
    assert len([*execute(RunFolder.begin(tmp_path / "runs", ALL))]) == 2


def test_neither_do_nodes_that_did_not_do_the_first_round(tmp_path: Path) -> None:
    grid = grid_of(ALL, tmp_path / "site")

    @dataclass
    class Refusing(MemoryGrid):
        def _push(self, message: Any) -> str:
            if message.metadata.message_type == "query.work":
                self.fate = dict.fromkeys(self.apps, "raised")
            return super()._push(message)

    with pytest.raises(QuorumError):
        serve(Refusing(grid.apps, grid.configs), ALL, settings_in(tmp_path, 8))
    folder = RunFolder.begin(tmp_path / "runs", ALL)
    assert len([*execute(folder)]) == 2
    assert not folder.file("nodes.json").is_file()


def test_a_server_that_waits_leaves_the_clients_of_a_run_that_was_begun_meanwhile(
    tmp_path: Path,
) -> None:
    grid = site(tmp_path, clients(["m", "n"]), clients(["p", "q"]), clients(["a"]), of=ALL)
    fewer = MemoryGrid({n: grid.apps[n] for n in (1, 2)}, grid.configs)
    others = Meanwhile(
        grid.apps, grid.configs, happens=lambda: serve(fewer, ALL, settings_in(tmp_path, 4))
    )
    with pytest.raises(UsageError, match="was begun by another process meanwhile; the same `flwr"):
        serve(others, ALL, settings_in(tmp_path, 5))
    folder = RunFolder(tmp_path / "runs" / "small-seed0")
    assert json.loads(folder.file("clients.json").read_text())["names"] == ["m", "n", "p", "q"]
    assert "a" not in json.loads(folder.file("nodes.json").read_text())["clients"]
    assert [client.name for client in folder.clients()] == ["m", "n", "p", "q"]


def test_a_server_that_waits_does_not_train_under_the_experiment_of_another(tmp_path: Path) -> None:
    grid, edited = grid_of(ALL, tmp_path / "site"), replace(ALL, participation=0.5)
    others = Meanwhile(
        grid.apps,
        grid.configs,
        happens=lambda: RunFolder.create(tmp_path / "runs" / "small-seed0", edited),
    )
    with pytest.raises(UsageError, match=r"another run has .* \(participation is 0.5, not 1.0\)"):
        serve(others, ALL, settings_in(tmp_path, 8))
    folder = RunFolder(tmp_path / "runs" / "small-seed0")
    assert not folder.begun
    assert not folder.file("clients.json").exists()


@pytest.mark.parametrize("begun", [False, True])
def test_a_server_that_waits_writes_nothing_while_another_process_is_at_work(
    tmp_path: Path, begun: bool
) -> None:
    grid = grid_of(ALL, tmp_path / "site")
    folder = RunFolder(tmp_path / "runs" / "small-seed0")
    if begun:
        serve(grid, ALL, settings_in(tmp_path, 8)).file("clusters.csv").unlink()
    with ExitStack() as work:
        lock = work.enter_context
        others = Meanwhile(grid.apps, grid.configs, happens=lambda: lock(folder.locked()))
        before = contents(folder) if begun else {}
        with pytest.raises(InUseError, match="another process is running in it"):
            serve(others, ALL, settings_in(tmp_path, 8))
        if begun:
            assert contents(folder) == before
        else:
            assert not folder.file("clients.json").exists()
            assert not folder.file("nodes.json").exists()


def test_who_was_waited_for_in_vain_may_come_back_as_another_node(tmp_path: Path) -> None:
    grid = site(tmp_path, clients(["m", "n"]), clients(["p", "q"]), of=ALL)
    first = MemoryGrid({1: grid.apps[1]}, grid.configs)
    with pytest.raises(UsageError, match="clients: 2 is not at least 4"):
        serve(first, ALL, settings_in(tmp_path, 4))
    # Without a registered key, its number is new after a start.
    again = MemoryGrid({11: grid.apps[1], 2: grid.apps[2]}, {11: grid.configs[1], **grid.configs})
    folder = serve(again, ALL, settings_in(tmp_path, 4))
    owners = json.loads(folder.file("nodes.json").read_text())
    assert owners["clients"] == {"m": "node 11", "n": "node 11", "p": "node 2", "q": "node 2"}
    assert owners["refused"] == {}
