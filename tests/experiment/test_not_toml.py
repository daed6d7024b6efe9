"""Settings that no table can hold are refused before there is a folder."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from umbel.algorithms import FedAvg
from umbel.algorithms.base import Algorithm
from umbel.checks import UsageError
from umbel.client.work import LocalTraining
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.experiment.toml_file import structured
from umbel.folder.run_folder import RunFolder
from umbel.networks import MLP
from umbel.result.run import Experiment
from umbel.testing.sameness import its_settings_read_back_from_toml_the_same

SAID = r"thing: 1j is not a value that TOML can hold"


@dataclass(frozen=True)
class Odd(FedAvg):
    """Has a field of a type that TOML lacks."""

    thing: complex = 1j


@dataclass(frozen=True)
class Named(FedAvg):
    """Has a field whose place in a table is that of its class."""

    name: str = "mine"


TAKEN = "name: a field of Named(MLP)?; rename it: the `name` of a table says which class it is"


def test_a_field_called_name_is_refused_when_it_is_read() -> None:
    with pytest.raises(UsageError, match=TAKEN):
        structured({"name": f"{__name__}:Named"}, Algorithm)
    with pytest.raises(UsageError, match=TAKEN):
        its_settings_read_back_from_toml_the_same(Named())


def test_it_is_refused_before_there_is_a_folder(tmp_path: Path) -> None:
    experiment = Experiment(replace(ROTATED_DIGITS, clients=4), MLP((4,)), Odd(LocalTraining()))
    with pytest.raises(UsageError, match=f"algorithm.{SAID}"):
        RunFolder.create(tmp_path / "runs" / "odd", experiment)
    assert not (tmp_path / "runs").exists()
