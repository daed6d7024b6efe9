"""Settings of personal models, and what can't be tuned."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from tests.engines.test_lies import Lying
from tests.runs.tuned import EXPERIMENT, LOCAL, PERSONAL, opened
from umbel.algorithms import (
    FedAvg,
    FedEM,
)
from umbel.checks import UsageError
from umbel.client.net import Net
from umbel.client.optimizers import Adam
from umbel.client.work import LocalTraining
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
        ({"epochs": ()}, "epochs: .* is not numbers of epochs"),
        ({"epochs": (0,)}, "one of them 1 or more"),
        ({"epochs": (-1, 2)}, "one of them 1 or more"),
        ({"lr": 0.0}, "lr: 0.0 is not more than 0"),
        ({"batch_size": 0}, "batch_size: 0"),
        ({"interpolate": (1.5,)}, "interpolate: .* is not weights in"),
        ({"interpolate": (0.0,)}, "one of them more than 0"),
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


def test_epochs_that_memory_can_not_hold_are_refused_before_the_first_round(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("umbel.checks.free_memory", lambda: 2**34)
    run = opened(personal=replace(PERSONAL, epochs=(1, 200_000_000)))
    with pytest.raises(UsageError, match=r"^personal\.epochs: 199,999,999 epochs at a client, "):
        run.start(3)


def test_mini_batches_of_clients_elsewhere_do_not_need_this_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("umbel.checks.free_memory", lambda: 2**34)
    run = opened(personal=replace(PERSONAL, epochs=(1, 200_000_000)))
    replace(run, federation=run.divided, engine=Lying(run.clients, lambda *_: None)).start(3)


def test_batch_normalisation_is_told_of_mini_batches_of_one() -> None:
    def build() -> torch.nn.Module:
        return torch.nn.Sequential(
            torch.nn.Flatten(), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 10)
        )

    federation = opened(personal=None).federation.with_validation(0.2)
    size = int(federation.train.sizes[0])
    personal = Personal(batch_size=size - 1)
    method = FedAvg(LocalTraining(batch_size="all"))
    said = r"batch normalisation needs two.*: set another batch_size in \[personal\], or "
    with pytest.raises(UsageError, match=said):
        list(Run(method, federation, Net(build), personal=personal).rounds(1))


@dataclass(frozen=True)
class Unsaid(FedEM):
    """A method that mixes models, and does not say so."""

    mixes: ClassVar[bool] = False


def test_a_method_that_does_not_say_it_mixes_is_refused_after_its_first_round() -> None:
    rounds = opened(algorithm=Unsaid(local=LOCAL)).rounds(5)
    with pytest.raises(UsageError, match="one model: its clients use mixtures"):
        next(rounds)
