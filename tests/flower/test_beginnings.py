"""What is in a run's folder before its first round is of the server that does this round."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from tests.algorithms.test_contract import LOCAL
from tests.flower.grid import MemoryGrid
from tests.flower.small import SMALL, clients, grid_of, site
from umbel.algorithms import FedAvg
from umbel.checks import UsageError
from umbel.flower import Settings, serve
from umbel.folder.execution import execute
from umbel.folder.run_folder import RunFolder

ALL = replace(SMALL, algorithm=FedAvg(LOCAL), participation=1.0, rounds=2)


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
