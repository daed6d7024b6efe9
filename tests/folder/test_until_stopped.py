"""Runs whose number of rounds is open: they go on until they are stopped."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from itertools import islice
from operator import length_hint
from pathlib import Path
from typing import Any

import pytest
from flwr.app import Message

import umbel
from tests.flower.small import SMALL, grid_of
from tests.folder.saved import LOCAL, make_run
from tests.folder.test_execution import EXPERIMENT, begin, finish, go_on
from tests.run.test_time import federation, net
from tests.shell import Shell
from umbel.checks import UsageError
from umbel.flower.server import Settings, serve
from umbel.folder import models_folder, tensor_files
from umbel.folder.checkpoint import next_round
from umbel.folder.resuming import reopened, replan
from umbel.folder.run_folder import RunFolder
from umbel.testing import assert_same_state

OPEN = replace(EXPERIMENT, rounds="until-stopped")


def models(folder: RunFolder) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.file("models").iterdir()}


@pytest.mark.parametrize("changes", [{}, {"evaluate_every": 3, "checkpoint_every": 2}], ids=str)
def test_one_that_is_stopped_and_ended_is_that_of_so_many_rounds(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    whole = finish(begin(tmp_path / "whole", replace(EXPERIMENT, rounds=8, **changes)))
    folder = begin(tmp_path / "open", replace(OPEN, **changes))
    go_on(folder, 3)
    go_on(folder, 8 - next_round(folder.file("checkpoint.safetensors")))
    ours, theirs = umbel.finish(folder.path), umbel.load(whole.path)
    assert ours.experiment.rounds == "until-stopped"
    assert [each.untimed() for each in ours.records] == [each.untimed() for each in theirs.records]
    assert ours.clients == theirs.clients
    assert_same_state(ours.state, theirs.state, tolerance=0)


def test_at_each_checkpoint_it_has_the_models_that_it_would_end_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, written = begin(tmp_path / "open", replace(OPEN, checkpoint_every=4)), list[set[str]]()

    def write(*args: Any, **kwargs: Any) -> None:
        written.append(set(models(folder)))
        tensor_files.write(*args, **kwargs)

    monkeypatch.setattr(models_folder, "write", write)
    go_on(folder, 4)
    before = models(folder)
    umbel.finish(folder.path)
    assert models(folder) == before
    replan(folder, reopened(folder, None, None), "until-stopped")
    go_on(folder, 4)
    assert models(folder).keys() == before.keys()
    assert models(folder) != before
    # One after another is replaced: a program that serves them finds each of them at any time.
    assert len(before) > 1
    assert all(names >= before.keys() for names in written[len(before) :])


def test_rounds_in_memory_do_not_end_either() -> None:
    run = make_run(algorithm=umbel.FedAvg(LOCAL))
    rounds = run.rounds("until-stopped")
    assert length_hint(rounds) == 0
    assert [record.round for _, record in islice(umbel.progress(rounds), 3)] == [0, 1, 2]
    with pytest.raises(UsageError, match='rounds: 0 is not 1 or more, or "until-stopped"'):
        run.rounds(0)


def test_what_needs_the_number_of_rounds_refuses_it(tmp_path: Path) -> None:
    run = umbel.Run(umbel.FedAvg(LOCAL), federation(), net(), time=umbel.Time(rounds=2))
    with pytest.raises(UsageError, match=r"rounds: 'until-stopped' is not at most 8, time\.rounds"):
        run.save(tmp_path / "time", "until-stopped")
    run = make_run(algorithm=umbel.CFLGP(2, local=LOCAL))
    with pytest.raises(UsageError, match='patience: None is not a number with rounds = "until'):
        run.rounds("until-stopped")
    run = replace(run, algorithm=umbel.CFLGP(2, local=LOCAL, patience=3))
    assert len(list(islice(run.rounds("until-stopped"), 2))) == 2


def test_commands_say_how_far_it_is(umbel: Shell) -> None:
    refused = umbel.refused("compare", "both", "--set", "rounds=until-stopped")
    assert "rounds: 'until-stopped' is not a number: only runs that end are compared" in refused
    run, folder = "runs/fedavg-seed0", RunFolder(umbel.folder / "runs" / "fedavg-seed0")
    umbel("run", "both/fedavg.toml", "--set", "rounds=until-stopped", "--until", "loss=100")
    once = umbel("watch", run, "--once")[0]
    assert "stopped after 1 round: loss" in once
    assert "1 so far" in once
    folder.file("clusters.csv").unlink()  # as before its end
    folder.file("stopped.json").unlink()
    once = umbel("watch", run, "--once")[0]
    assert "goes on" in once
    assert "time left" not in once
    umbel("resume", run)
    assert "finished already: 1 round: loss" in umbel("resume", run)[0]
    umbel("resume", run, "--rounds", "3")
    umbel("resume", run, "--rounds", "until-stopped", "--max-time", "0.001")
    assert len(folder.records()) == 4
    umbel("show", run)
    umbel("show", run, "--csv")
    umbel("report", run)


def test_over_flower_it_ends_when_it_is_given_a_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    experiment = replace(SMALL, rounds="until-stopped", checkpoint_every=2, evaluate_every=3)
    grid = grid_of(experiment, tmp_path)
    settings = Settings(clients=8, time_limit=5.0, runs_dir=str(tmp_path / "runs"))
    folder, push = RunFolder.of(tmp_path / "runs", experiment), grid.push_messages

    def stopped(messages: Iterable[Message]) -> list[str]:
        if next_round(folder.file("checkpoint.safetensors")) == 4:
            raise KeyboardInterrupt  # as when the server is stopped
        return push(messages)

    monkeypatch.setattr(grid, "push_messages", stopped)
    with pytest.raises(KeyboardInterrupt):
        serve(grid, experiment, settings)
    monkeypatch.undo()
    assert models(folder)
    with pytest.raises(UsageError, match="rounds: 3 is not 4 or more, as 4 are done"):
        serve(grid, replace(experiment, rounds=3), settings)
    ours = umbel.load(serve(grid, replace(experiment, rounds=4), settings).path)
    whole = replace(experiment, rounds=4, name="whole")
    theirs = umbel.load(serve(grid, whole, settings).path)
    assert [each.accuracy for each in ours.records] == [each.accuracy for each in theirs.records]
    assert_same_state(ours.state, theirs.state, tolerance=0)
    with pytest.raises(UsageError, match="holds another experiment"):
        serve(grid, replace(experiment, rounds=9), settings)
