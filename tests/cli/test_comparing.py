"""Comparisons with swept settings, and with several processes at work on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shell import Shell
from umbel.runs.folder import RunFolder


def test_a_swept_setting_is_a_row_for_each_value(umbel: Shell) -> None:
    sweep = ("--seeds", "1", "--set", "rounds=2", "--set", "algorithm.n_merge=1,3")
    printed, errors = umbel("compare", "both", *sweep)
    assert errors == "fedavg: has no algorithm.n_merge, and runs without it\n"
    table = printed[printed.index("method") :].splitlines()
    for name in ("fedavg ", "flacc n_merge=1 ", "flacc n_merge=3 "):
        assert sum(line.startswith(name) for line in table) == 1
    assert sorted(path.name for path in (umbel.folder / "runs" / "both").iterdir()) == [
        "fedavg-seed0",
        "flacc,algorithm.n_merge=1-seed0",
        "flacc,algorithm.n_merge=3-seed0",
    ]
    (umbel.folder / "runs/both/flacc,algorithm.n_merge=3-seed0/clusters.csv").unlink()
    printed, _ = umbel("compare", "both", *sweep)
    assert printed.count("finished already") == 2
    rows = json.loads(umbel("show", "runs/both", "--json")[0])
    assert [row["algorithm.n_merge"] for row in rows] == [None, 1, 3]


def test_what_no_experiment_has_can_not_be_swept(umbel: Shell) -> None:
    message = umbel.refused("compare", "both", "--set", "algorithm.lam=1,2")
    assert "--set algorithm.lam: unknown key: no experiment of both has it" in message
    assert "several seeds are --seeds" in umbel.refused("compare", "both", "--set", "seed=1,2")
    message = umbel.refused("compare", "both", "--set", "participation=0.5,7")
    assert "participation: 7.0 is not in (0, 1]" in message


def compare(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    """`umbel compare both ...` as a process of its own."""
    command = [sys.executable, "-m", "umbel", "compare", "both", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "COLUMNS": "200"}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        command, cwd=folder, env=environment, stdout=pipe, stderr=pipe, text=True
    )


def ended(process: subprocess.Popen[str]) -> tuple[str, str]:
    """What a process printed on its two streams, when it has ended well."""
    printed, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    return printed, errors


def test_two_processes_share_the_runs_of_a_comparison(umbel: Shell) -> None:
    arguments = ("--seeds", "2", "--set", "participation=0.5,1.0", "--json")
    both = [compare(umbel.folder, *arguments) for _ in range(2)]
    first, second = (json.loads(ended(process)[0]) for process in both)
    assert first == second
    assert len(first) == 8
    assert all(row["finished"] and row["rounds"] == 4 for row in first)
    for row in first:  # each was made once
        assert len(RunFolder(umbel.folder / row["folder"]).sessions()) == 1


def test_a_run_that_another_process_is_making_is_waited_for(umbel: Shell) -> None:
    umbel("compare", "both", "--seeds", "1", "--set", "rounds=2")
    folder = RunFolder(umbel.folder / "runs" / "both" / "fedavg-seed0")
    folder.file("clusters.csv").unlink()
    with folder.locked():
        process = compare(umbel.folder, "--seeds", "1", "--set", "rounds=2")
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said == f"waiting for 1 run of another process: {Path('runs/both/fedavg-seed0')}\n"
    printed, _ = ended(process)  # the other process has stopped: its run goes on here
    assert folder.finished
    assert "flacc-seed0: finished already" in printed
    assert any(line.startswith("fedavg ") for line in printed.splitlines())


def test_a_run_that_was_described_otherwise_goes_on(umbel: Shell) -> None:
    umbel("compare", "both", "--seeds", "1")
    printed, _ = umbel("compare", "both", "--seeds", "1", "--set", "description=anew")
    assert printed.count("finished already") == 2


@pytest.mark.parametrize("command", ["run", "compare"])
def test_a_list_is_one_value(command: str, umbel: Shell) -> None:
    name = "both/flacc.toml" if command == "run" else "both"
    seeds = () if command == "run" else ("--seeds", "1")
    settings = ("--set", "model.hidden=[8, 4]", "--set", "rounds=1")
    assert "round 1/1" in umbel(command, name, *seeds, *settings)[0]
