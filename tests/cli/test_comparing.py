"""Comparisons with swept settings, and with several processes at work on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.processes import ended, start_umbel, wait_for_lines
from tests.shell import SMALL, Shell
from umbel.folder.run_folder import RunFolder


def test_a_swept_setting_is_a_row_for_each_value(umbel: Shell) -> None:
    sweep = ("--seeds", "1", "--set", "rounds=2", "--set", "algorithm.n_merge=1,3")
    printed, errors = umbel("compare", "both", *sweep)
    assert errors == "fedavg: has no algorithm.n_merge, and runs without it\n"
    table = printed[printed.index("method") : printed.index("accuracy: mean")].splitlines()
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
    assert "several seeds by --seeds" in umbel.refused("compare", "both", "--set", "seed=1,2")
    message = umbel.refused("compare", "both", "--set", "participation=0.5,7")
    assert "participation: 7.0 is not in (0, 1]" in message


def test_methods_are_compared_by_a_metric_that_all_of_them_measure(umbel: Shell) -> None:
    measured = ("compare", "both", "--seeds", "1", "--set", "rounds=2")
    message = umbel.refused(*measured, "--judge", "perplexity")
    assert "judge: 'perplexity' is not measured by all of these runs" in message
    assert not (umbel.folder / "runs").exists()
    judged = ("--set", 'metrics=["perplexity"]', "--judge", "perplexity")
    assert "ahead: less perplexity" in umbel(*measured, *judged)[0]
    assert "ahead: less perplexity" in umbel("show", "runs/both", "--judge", "perplexity")[0]
    assert "ahead: more accuracy" in umbel("show", "runs/both")[0]
    rows = umbel("show", "runs/both", "--judge", "perplexity", "--rows", "differences", "--json")[0]
    assert json.loads(rows)[0]["measure"] == "perplexity"


@pytest.mark.long
def test_two_processes_share_the_runs_of_a_comparison(umbel: Shell) -> None:
    words = ("--seeds", "2", "--set", "participation=0.5,1.0", "--json")
    both = [umbel.folder / name for name in ("one", "two")]
    for folder in both:
        folder.mkdir()
        (folder / "both").symlink_to(umbel.folder / "both")
    shared = ("--runs-dir", str(umbel.folder / "runs"))
    processes = [start_umbel(folder, "compare", "both", *words, *shared) for folder in both]
    assert [ended(process) for process in processes] == [0, 0]
    first, second = (json.loads((folder / "out").read_text()) for folder in both)
    assert first == second
    assert len(first) == 8
    assert all(row["finished"] and row["rounds"] == 4 for row in first)
    for row in first:  # each was made once
        assert len(RunFolder(umbel.folder / row["folder"]).sessions.read()) == 1


@pytest.mark.long
def test_a_run_that_another_process_is_making_is_waited_for(umbel: Shell) -> None:
    umbel("compare", "both", "--seeds", "1", "--set", "rounds=2")
    folder = RunFolder(umbel.folder / "runs" / "both" / "fedavg-seed0")
    folder.file("clusters.csv").unlink()
    errors = umbel.folder / "err"
    with folder.locked():
        words = ("compare", "both", "--seeds", "1", "--set", "rounds=2")
        process = start_umbel(umbel.folder, *words)
        wait_for_lines(process, errors, 1)
        said = errors.read_text()
        assert said == f"waiting for 1 run of another process: {Path('runs/both/fedavg-seed0')}\n"
    assert ended(process) == 0  # the other process has stopped: its run goes on here
    assert folder.finished
    printed = (umbel.folder / "out").read_text()
    assert "flacc-seed0: finished already" in printed
    assert any(line.startswith("fedavg ") for line in printed.splitlines())


def test_what_can_not_start_is_named_before_another_is_trained(umbel: Shell) -> None:
    for name, method in (("flacc", "oracle"), ("fedavg", "fedavg")):
        text = SMALL.format(name=method).replace("rotated-digits", "few-labels")
        (umbel.folder / "both" / f"{name}.toml").write_text(text)
    message = umbel.refused("compare", "both", "--seeds", "2")
    assert message.startswith("umbel: flacc seed 0: scenario: ")
    assert not (umbel.folder / "runs").exists()


def test_two_files_of_one_name_are_refused_before_any_run(umbel: Shell) -> None:
    text = SMALL.format(name="fedavg").replace("participation = 0.5\n", "")
    (umbel.folder / "both" / "zeal.toml").write_text('name = "fedavg"\n' + text)
    message = umbel.refused("compare", "both", "--seeds", "2")
    said = "is not unique: fedavg.toml and zeal.toml have it"
    assert message.startswith("umbel: name: 'fedavg")
    assert message.endswith(f"{said}; give each experiment a name of its own")
    assert not (umbel.folder / "runs").exists()


def test_in_a_narrow_terminal_all_methods_have_their_name(umbel: Shell) -> None:
    umbel.monkeypatch.setenv("COLUMNS", "30")
    printed, _ = umbel("compare", "both", "--seeds", "1", "--set", "rounds=1")
    lines = [line.strip() for line in printed.splitlines()]
    assert sum(line.startswith(("fedavg ", "flacc ")) for line in lines) >= 2 + 2 + 1
    assert "\N{HORIZONTAL ELLIPSIS}" not in printed
