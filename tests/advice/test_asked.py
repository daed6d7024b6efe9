"""The data, network and local training that advice is asked about."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import umbel
from umbel.advice.data_source import asked_about, local_training
from umbel.algorithms import IFCA, Restarts
from umbel.client.optimizers import Adam
from umbel.experiment.toml_file import write
from umbel.result.run import Experiment

DIGITS: Any = umbel.read(umbel.find_experiment("ifca-digits"))


def test_another_scenario_named_for_data_reads_these_data(tmp_path: Path) -> None:
    settings = ["scenario.name=windows", "scenario.length=20"]
    scenario: Any = asked_about(str(tmp_path), settings, None).scenario
    assert (scenario.path, scenario.length) == (str(tmp_path), 20)
    other: Any = asked_about(str(tmp_path), [*settings, "scenario.path=other"], None).scenario
    assert other.path == str(Path.cwd() / "other")
    with pytest.raises(umbel.UsageError, match="a scenario that reads files"):
        asked_about(str(tmp_path), ["scenario.name=rotated-digits"], None)


def stated(data: str, *settings: str) -> umbel.LocalTraining | None:
    return local_training(asked_about(data, settings, None), data, settings)


def test_local_training_is_that_of_the_method_within(tmp_path: Path) -> None:
    local = umbel.LocalTraining(lr=0.003, epochs=3, batch_size=7, optimizer=Adam())
    method = Restarts(IFCA(num_clusters=2, local=local), restarts=3)
    file = tmp_path / "restarted.toml"
    file.write_text(write(Experiment(DIGITS.scenario, DIGITS.model, method)))
    assert stated(str(file)) == local
    assert stated(str(file), "algorithm.local.lr=0.005") == umbel.LocalTraining(
        lr=0.005, epochs=3, batch_size=7, optimizer=Adam()
    )


def test_local_training_is_stated_by_a_table_as_by_its_keys() -> None:
    expected = umbel.LocalTraining(lr=0.01, epochs=4)
    whole = 'algorithm={name="fedavg", local={lr=0.01, epochs=4}}'
    assert stated("rotated-digits", whole) == expected
    assert (
        stated("rotated-digits", "algorithm.local.lr=0.01", "algorithm.local.epochs=4") == expected
    )
    assert stated("rotated-digits", "model.hidden=[8]") is None
    assert stated("rotated-digits", "algorithm.name=ifca") is None


def test_an_experiment_without_local_training_has_its_rate_found_as_data_have(
    tmp_path: Path,
) -> None:
    file = tmp_path / "short.toml"
    file.write_text(
        'scenario = {name = "rotated-digits"}\nmodel = {name = "linear"}\n'
        'algorithm = {name = "fedavg"}\n'
    )
    assert stated(str(file)) is None
    assert stated(str(file), "algorithm.local.lr=0.01") == umbel.LocalTraining(lr=0.01)
