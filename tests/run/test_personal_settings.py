"""Settings of personal models, and what can't be tuned."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.run.tuned import EXPERIMENT, LOCAL, PERSONAL, opened
from umbel.algorithms import (
    FedAvg,
    FedEM,
)
from umbel.checks import UsageError
from umbel.client.optimizers import Adam
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.engines.privacy import Privacy
from umbel.experiment.toml_file import write
from umbel.result.run import Run, read
from umbel.run.personal import Personal


def test_settings_are_read_and_written() -> None:
    text = write(EXPERIMENT)
    assert "[personal]" in text
    assert "[personal]" not in write(replace(EXPERIMENT, personal=None))
    assert PERSONAL.choices == ((0, 0.0), (1, 1.0), (3, 1.0))
    between = replace(PERSONAL, interpolate=(1.0, 0.5, 0.0))
    assert between.choices == ((0, 0.0), (1, 0.5), (1, 1.0), (3, 0.5), (3, 1.0))
    assert between.shares.tolist() == [[0, 0], [0.5, 0], [1, 0], [0, 0.5], [0, 1]]
    assert [work.local.epochs for work in PERSONAL.works()] == [1, 2]
    adam = replace(PERSONAL, optimizer=Adam())
    assert all(work.local.optimizer == Adam() for work in adam.works())


def test_the_experiment_of_a_run_says_how_clients_tune(tmp_path: Path) -> None:
    file = tmp_path / "small.toml"
    file.write_text(write(EXPERIMENT))
    assert read(file) == EXPERIMENT
    assert read(file, ["personal.epochs=[2]"]).personal == replace(PERSONAL, epochs=(2,))
    by_adam = read(file, ["personal.optimizer.beta1=0.5", "personal.optimizer.name=adam"])
    assert by_adam.personal == replace(PERSONAL, optimizer=Adam(beta1=0.5))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"epochs": (0,)}, "one of them 1 or more"),
        ({"lr": 0.0}, "lr: 0.0 is not more than 0"),
        ({"interpolate": (1.5,)}, "interpolate: .* is not weights in"),
        ({"validation_fraction": 0.0}, r"validation_fraction: 0.0 is not in \(0, 1\)"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Personal(**settings)


def test_what_can_not_be_tuned_is_refused_before_the_first_round(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="one model: its clients use mixtures"):
        replace(EXPERIMENT, algorithm=FedEM(local=LOCAL))
    with pytest.raises(UsageError, match=r"not allowed with privacy\.clip"):
        replace(EXPERIMENT, algorithm=FedAvg(local=LOCAL), privacy=Privacy(clip=1.0))
    with pytest.raises(UsageError, match="set validation_fraction"):
        opened(personal=replace(PERSONAL, validation_fraction=None)).rounds(1)
    with pytest.raises(UsageError, match=r"personal\.validation_fraction: 0\.25 is not allowed"):
        opened(scenario=replace(ROTATED_DIGITS, clients=8, validation_fraction=0.2))
    with pytest.raises(UsageError, match=r"personal\.parameters: 'head' is not a pattern"):
        opened(personal=replace(PERSONAL, parameters=("head",))).rounds(1)
    run = opened(personal=None)
    with pytest.raises(UsageError, match=r"federation\.with_validation"):
        Run(run.algorithm, run.federation, run.net, personal=Personal()).rounds(1)
    several = Run(
        FedAvg(LOCAL), run.federation.with_validation(0.2), run.net, personal=Personal(epochs=(1,))
    )
    assert several.save(tmp_path / "own", 1).clients[0].tuned_epochs is not None
