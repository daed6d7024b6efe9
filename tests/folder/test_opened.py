"""A run that an experiment opened is kept as that experiment, and goes on without Python."""

from __future__ import annotations

from dataclasses import replace

import pytest

import umbel as library
from tests.shell import Shell
from umbel import FedAvg, Personal, Run, Sources, UsageError, load, read, resume
from umbel.result.run import Experiment


@pytest.fixture
def experiment(umbel: Shell) -> Experiment:
    return read(umbel.folder / "both" / "fedavg.toml")


def opened(experiment: Experiment) -> Run:
    return experiment.open(Sources.default())


def test_a_saved_run_holds_its_experiment_and_is_resumed_by_the_command_line(
    umbel: Shell, experiment: Experiment
) -> None:
    opened(experiment).save("runs/mine", 4)
    there = load("runs/mine").experiment
    assert there == replace(experiment, name="mine")
    umbel("resume", "runs/mine", "--rounds", "+1")
    umbel("run", "both/fedavg.toml", "--set", "rounds=5", "--runs-dir", "others")
    mine, other = load("runs/mine"), load("others/fedavg-seed0")
    assert mine.state.models.equal(other.state.models)
    out, _ = umbel("show", "runs/mine")
    assert "network mlp" in out


@pytest.mark.parametrize(
    "changed",
    [
        lambda run: replace(run, algorithm=FedAvg(), participation=1.0),
        lambda run: replace(run, personal=Personal(validation_fraction=0.2)),
    ],
    ids=["method", "personal"],
)
def test_a_changed_run_is_kept_with_its_changes(
    umbel: Shell, experiment: Experiment, changed: object
) -> None:
    run: Run = changed(opened(experiment))  # type: ignore[operator]
    for _ in run.rounds(4, folder="runs/mine"):
        break
    umbel("resume", "runs/mine")
    there = opened(load("runs/mine").experiment)
    assert (there.algorithm, there.personal, there.metrics) == (
        run.algorithm,
        run.personal,
        run.metrics,
    )


def test_a_run_of_the_command_line_goes_on_in_python_with_the_opened_run(
    umbel: Shell, experiment: Experiment
) -> None:
    umbel("run", "both/fedavg.toml")
    assert len(resume("runs/fedavg-seed0", opened(experiment), rounds="+1").records) == 5
    other = replace(experiment, participation=0.25)
    with pytest.raises(UsageError, match=r"participation was 0\.5 and is 0.25"):
        resume("runs/fedavg-seed0", opened(other))
    run = opened(experiment)
    python = Run(run.algorithm, run.federation, run.net)
    with pytest.raises(UsageError, match="made from an experiment, not from data and a module in"):
        resume("runs/fedavg-seed0", python)


def test_another_seed_or_federation_is_no_longer_the_experiment(
    umbel: Shell, experiment: Experiment, caplog: pytest.LogCaptureFixture
) -> None:
    replace(opened(experiment), seed=3).save("runs/other", 1)
    assert "its seed is 3, and its data are those of seed 0" in caplog.text
    caplog.clear()
    others = library.scenario("rotated-digits", clients=6)
    replace(opened(experiment), federation=others).save("runs/newcomers", 1)
    assert "its seed" not in caplog.text
    for name in ("other", "newcomers"):
        _, err = umbel("resume", f"runs/{name}", "--rounds", "2", status=2)
        assert "was made in Python" in err
