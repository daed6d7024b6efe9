"""Numbers that are read back from runs, printed, and written to pages."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import umbel
from tests.federations import blobs, mlp
from tests.shell import Shell
from umbel.folder.run_folder import RunFolder
from umbel.report.comparison import Sheet
from umbel.report.pages.writing import write_files
from umbel.result.run import Result

LOCAL = umbel.LocalTraining(lr=0.1, epochs=1)


def error(targets: Any, values: Any) -> float:
    """A metric of which less is better, which umbel can't know."""
    return float(np.mean(np.asarray(values).argmax(1) != targets))


def saved(folder: Path, rounds: int, method: Any = None, **given: Any) -> Result:
    run = umbel.Run(method or umbel.FedAvg(LOCAL), blobs((12, 16, 20)), mlp())
    return replace(run, **given).save(folder, rounds)


def test_rounds_that_are_done_are_told_where_other_runs_plan_others(tmp_path: Path) -> None:
    run = umbel.Run(umbel.FedAvg(LOCAL), blobs((12, 16)), mlp())
    run.save(tmp_path / "a", 20, until="loss=100")
    saved(tmp_path / "b", 3, umbel.LocalOnly(LOCAL))
    rows = umbel.results(tmp_path).runs
    assert [(row["rounds"], row["rounds_planned"]) for row in rows] == [(1, 20), (3, 3)]


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_loss_on_validation_examples_is_reached_from_above(
    umbel: Shell, form: tuple[str, ...]
) -> None:
    umbel("run", "both/fedavg.toml", "--set", "scenario.validation_fraction=0.5")
    rounds = json.loads(umbel("show", "runs/fedavg-seed0", "--json", "--rows", "rounds")[0])
    losses = [row["validation_loss"] for row in rounds]
    middle = (losses[0] + min(losses)) / 2
    goal = f"validation_loss={middle}"
    first = next(row["round"] for row, loss in zip(rounds, losses, strict=True) if loss <= middle)
    printed, _ = umbel("show", "runs/fedavg-seed0", "--reach", goal, *form)
    assert first > 1
    assert (json.loads(printed)[0]["round"] == first) if form else (f"{first:.1f}" in printed)


def test_of_a_metric_of_ones_own_nobody_knows_when_it_is_reached(
    umbel: Shell,
) -> None:
    saved(umbel.folder / "own", 2, metrics=(f"{__name__}:error",))
    said = umbel.refused("show", "own", "--reach", "error=0.1")
    assert "--reach: 'error' is not a measure of which more or less is known to be better" in said


def test_two_runs_of_one_name_and_seed_are_no_two_seeds(umbel: Shell) -> None:
    umbel("run", "both/fedavg.toml", "--runs-dir", "twice")
    umbel("run", "both/fedavg.toml", "--runs-dir", "other")
    (umbel.folder / "other" / "fedavg-seed0").rename(umbel.folder / "twice" / "fedavg")
    said = "is fedavg with seed 0, and so is twice/fedavg"
    for command in (("show", "twice"), ("report", "twice"), ("show", "twice", "--at", "1")):
        assert said in umbel.refused(*command)


def test_a_round_that_not_all_seeds_did_has_no_mean(umbel: Shell) -> None:
    umbel("run", "both/fedavg.toml", "--runs-dir", "some")
    umbel("run", "both/fedavg.toml", "--runs-dir", "some", "--seed", "1", "--until", "loss=100")
    printed, _ = umbel("show", "some", "--at", "1,4")
    (row,) = [line.split() for line in printed.splitlines() if line.startswith("fedavg")]
    assert row[-1] == "-"
    assert "±" in row[-2]
    assert "not finished" not in printed


def test_rows_of_runs_that_are_not_finished_are_where_the_sentence_says(umbel: Shell) -> None:
    umbel("compare", "both", "--seeds", "1")
    folder = RunFolder(umbel.folder / "runs" / "both" / "flacc-seed0")
    folder.file("clusters.csv").unlink()
    printed = "".join(umbel("show", "runs/both"))
    assert "not finished: flacc-seed0; `umbel show runs/both --csv` has rows for them" in printed
    assert len(umbel("show", "runs/both", "--csv")[0].splitlines()) == 3


def test_a_page_says_how_a_run_that_was_stopped_is_made_again(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    run = umbel.Run(umbel.FedAvg(LOCAL), blobs((12, 16)), mlp())
    run.save(tmp_path / "goal", 5, until="loss=100")
    page = write_files(tmp_path / "goal")[0].read_text()
    assert "rounds=5, until=[" in page
    assert "loss=100" in page


def test_names_of_methods_stay_whole_in_csv_and_are_no_formulas() -> None:
    rows_of = ("a±b", "0.9±0.1", "1"), ("=1+1", "0.8±0.1", "-1")
    table = Sheet(("method", "accuracy", "own;=1"), rows_of)
    rows: Sequence[list[str]] = list(csv.reader(io.StringIO(table.csv)))
    assert rows == [
        ["method", "accuracy", "accuracy std", "own;'=1"],
        ["a±b", "0.9", "0.1", "1"],
        ["'=1+1", "0.8", "0.1", "-1"],
    ]
