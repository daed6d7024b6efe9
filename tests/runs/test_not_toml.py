"""A method with a setting that TOML lacks is refused before there is a folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from umbel.algorithms import FedAvg
from umbel.checks import UsageError
from umbel.client.work import LocalTraining
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.networks import MLP
from umbel.runs.experiment import Experiment
from umbel.runs.folder import RunFolder
from umbel.testing.sameness import its_settings_read_back_from_toml_the_same

SAID = r"thing: 1j is not a value that TOML can hold"


@dataclass(frozen=True)
class Odd(FedAvg):
    """Has a field of a type that TOML lacks."""

    thing: complex = 1j


def test_it_is_refused_before_there_is_a_folder(tmp_path: Path) -> None:
    experiment = Experiment(replace(ROTATED_DIGITS, clients=4), MLP((4,)), Odd(LocalTraining()))
    with pytest.raises(UsageError, match=f"algorithm.{SAID}"):
        RunFolder.create(tmp_path / "runs" / "odd", experiment)
    assert not (tmp_path / "runs").exists()


def test_the_contract_says_the_same() -> None:
    with pytest.raises(UsageError, match=f"^{SAID}"):
        its_settings_read_back_from_toml_the_same(Odd(LocalTraining()))
