"""Damaged folders of runs, those that were found and some that are drawn."""

from __future__ import annotations

import pytest

from tests.fuzz.folders import Whole, attack, attacks, folders


@pytest.fixture(scope="module")
def wholes(tmp_path_factory: pytest.TempPathFactory) -> list[Whole]:
    return folders(tmp_path_factory.mktemp("whole"))


def test_damage_is_told_in_one_line_or_loses_nothing(wholes: list[Whole]) -> None:
    faults = {str(each): attack(each) for each in attacks(wholes, 250, seed=0)}
    assert {name: fault for name, fault in faults.items() if fault} == {}
