"""Folders of runs that were changed on purpose, and sealed again; the rest is tests/runs."""

from __future__ import annotations

import os

import pytest

from tests.fuzz.commands import attack
from tests.fuzz.folders import Whole, folders
from tests.fuzz.forged import forgeries


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> list[Whole]:
    return folders(tmp_path_factory.mktemp("whole"))


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes")
def test_whoever_looks_at_a_forged_folder_is_told_in_one_line(wholes: list[Whole]) -> None:
    found = {str(each): each.fault(attack(each.wrong)) for each in forgeries(wholes, 60, seed=0)}
    # Time is left out: machines and their loads differ.
    faults = {name: f for name, f in found.items() if f is not None and not f.startswith("takes")}
    assert faults == {}
