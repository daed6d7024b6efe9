"""A run that was stopped between checkpoints ends, and goes on, from the last of them."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

import umbel
from umbel.checks import InUseError, UsageError
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.data.sources import Sources
from umbel.folder.checkpoint import next_round
from umbel.folder.execution import execute
from umbel.folder.resuming import rounds_in
from umbel.folder.run_folder import RunFolder
from umbel.networks import Linear
from umbel.result.run import Experiment
from umbel.run.stopping import Budget

EXPERIMENT = Experiment(
    scenario=replace(ROTATED_DIGITS, clients=4),
    model=Linear(),
    algorithm=umbel.FedAvg(umbel.LocalTraining(epochs=1)),
    rounds=9,
)


def stopped(folder: Path, rounds: int, every: int) -> RunFolder:
    """A run whose process ended after some rounds, with what it had written until then."""
    made = RunFolder.create(folder, replace(EXPERIMENT, checkpoint_every=every))
    going = execute(made, Sources.default(None))
    list(islice(going, rounds))
    going.close()  # type: ignore[attr-defined]
    return made


def test_rounds_after_the_last_checkpoint_are_said_to_be_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = stopped(tmp_path / "run", 6, 4)
    assert len(folder.records()) == 6
    ended = umbel.finish(folder.path)
    assert len(ended.records) == 4
    assert "2 rounds after the last checkpoint left out" in caplog.text


def test_without_a_checkpoint_the_way_on_is_said(tmp_path: Path) -> None:
    folder = stopped(tmp_path / "run", 3, 5)
    said = "3 rounds done, and no checkpoint yet: one every 5; go on with it by `umbel resume"
    with pytest.raises(UsageError, match=re.escape(said)):
        umbel.finish(folder.path)


def own_run() -> umbel.Run:
    net = umbel.Net(lambda: torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)))
    return umbel.Run(EXPERIMENT.algorithm, umbel.scenario("rotated-digits", clients=4), net)


def test_a_run_that_was_begun_has_checkpoints_as_often_as_the_call_asks(
    tmp_path: Path,
) -> None:
    run, path = own_run(), tmp_path / "mine"
    going = rounds_in(run, path, 9, Budget(), checkpoint_every=4)
    list(islice(going, 1))
    going.close()  # type: ignore[attr-defined]
    going = run.rounds(9, folder=path)
    list(islice(going, 2))
    assert next_round(path / "checkpoint.safetensors") == 2
    with pytest.raises(InUseError):
        run.save(path, 9, checkpoint_every=3)
    going.close()  # type: ignore[attr-defined]
    with pytest.raises(UsageError, match="checkpoint_every: 0 is not 1 or more"):
        run.save(path, 9, checkpoint_every=0)
    assert run.save(path, 9, checkpoint_every=3).experiment.checkpoint_every == 3
    before = (path / "experiment.toml").read_bytes()
    assert len(run.save(path, 9).records) == 9  # a finished run has no round left
    assert (path / "experiment.toml").read_bytes() == before


def test_a_run_killed_after_its_last_round_is_finished_whatever_its_new_budget(
    tmp_path: Path,
) -> None:
    folder = stopped(tmp_path / "run", 9, 1)
    assert not folder.finished
    said = f"not more than the 9 rounds that are done; `umbel finish {folder.path}` ends it there"
    with pytest.raises(UsageError, match=re.escape(said)):
        umbel.resume(folder.path, rounds=9)
    ended = umbel.resume(folder.path, until="accuracy=0")
    assert len(ended.records) == 9
    assert ended.folder.stop is None
