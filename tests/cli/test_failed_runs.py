"""A run that diverges, or gets too few usable replies, stops none of the others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.shell import Shell
from umbel.algorithms import FedAvg
from umbel.checks import UsageError, WorkersDiedError
from umbel.cli.compare import make_runs
from umbel.cli.execute import OwnScreen
from umbel.cli.jobs.job import noting
from umbel.client.work import LocalTraining
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.data.sources import Sources
from umbel.networks import MLP
from umbel.papers.base import Cell, Reproduction, Size
from umbel.papers.findings import Findings
from umbel.papers.runner import results, runs_left
from umbel.result.run import Experiment

SWEPT = ("--set", "rounds=1", "--set", "algorithm.local.lr=1e12,0.1")


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.long)])
def test_a_value_that_diverges_leaves_a_table_of_the_others(jobs: str, umbel: Shell) -> None:
    words = ("compare", "both", "--seeds", "2", *SWEPT, "--jobs", jobs)
    printed, errors = umbel(*words, status=1)
    table = printed[printed.index("method") : printed.index("accuracy: mean")]
    assert "fedavg lr=0.1" in table
    assert "flacc lr=0.1" in table
    assert "1000000000000" not in table
    starts = [
        f"umbel: {name},algorithm.local.lr=1000000000000 seed {seed}: round 0: training diverged "
        for name in ("fedavg", "flacc")
        for seed in range(2)
    ]
    lines = sorted(errors.splitlines())
    assert [line[: len(start)] for line, start in zip(lines, starts, strict=True)] == starts


def test_seeds_side_by_side_that_fail_in_their_own_ways_say_so_each(umbel: Shell) -> None:
    (umbel.folder / "both" / "flacc.toml").unlink()
    faults = ("--set", "faults.drop=0.4", "--set", "limits.quorum=0.75")
    words = ("compare", "both", "--seeds", "4", *faults)
    _, errors = umbel(*words, status=1)
    told = [line for line in errors.splitlines() if line.startswith("umbel: fedavg seed")]
    assert len(told) > 1
    for line in told:
        seed = line.split()[3].rstrip(":")
        _, alone = umbel("run", "both/fedavg.toml", "--seed", seed, *faults, status=1)
        assert alone.removeprefix("umbel: ").partition(";")[0] in line
        assert line.endswith("to change them choose another --runs-dir or name")


def test_rows_for_programs_have_the_run_that_can_not_go_on(umbel: Shell) -> None:
    words = ("compare", "both", "--seeds", "1", *SWEPT, "--control", "--json")
    printed, errors = umbel(*words, status=1)
    done = {row["name"]: row["finished"] for row in json.loads(printed)}
    assert done["fedavg,algorithm.local.lr=0.1"] is True
    assert done["fedavg,algorithm.local.lr=1000000000000"] is False
    assert "fedavg,algorithm.local.lr=1000000000000 seed 0: round 0: training div" in errors


def test_where_no_run_can_go_on_there_is_no_table(umbel: Shell) -> None:
    diverging = ("compare", "both", "--seeds", "1", "--set", "algorithm.local.lr=1e12")
    printed, errors = umbel(*diverging, status=1)
    assert "method" not in printed
    assert len(errors.splitlines()) == 2


@pytest.mark.parametrize("error", [WorkersDiedError("killed"), UsageError("no")])
def test_faults_of_the_machine_and_of_settings_stop_all_runs(error: Exception) -> None:
    with pytest.raises(type(error)), noting([]):
        raise error


def cell(row: str, lr: float) -> Cell:
    small = replace(ROTATED_DIGITS, clients=6, examples=(20,))
    method = FedAvg(LocalTraining(lr=lr, epochs=1))
    return Cell(row, "digits", Experiment(small, MLP((8,)), method, name=row, rounds=1))


@pytest.mark.parametrize("jobs", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_cell_of_a_table_that_diverges_stops_no_other(
    jobs: int, tmp_path: Path, sources: Sources
) -> None:
    def make(size: Size) -> Sequence[Cell]:  # noqa: ARG001
        return [cell("wild", 1e12), cell("tame", 0.1)]

    said = Findings("digits", "Somebody", "Something", "A setting.")
    wanted = Reproduction(said, make, ("accuracy",), ())
    left = runs_left(wanted, "smoke", (0, 1), tmp_path)
    failed = make_runs(left, tmp_path, sources, OwnScreen(), jobs)
    titles = [why.partition(": ")[0] for why in failed]
    assert sorted(titles) == ["wild seed 0", "wild seed 1"]
    saved = results(wanted, "smoke", (0, 1), tmp_path, "umbel reproduce digits")
    assert [done.row for done in saved.cells] == ["tame"]
