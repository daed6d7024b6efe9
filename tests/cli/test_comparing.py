"""Comparisons with swept settings, and with several processes at work on them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.processes import ended, start_umbel, wait_for_lines
from tests.shell import SMALL, Shell
from umbel.folder.run_folder import RunFolder

LINES = """
rounds = 2
[scenario]
name = "linear-regressions"
[model]
name = "linear"
[algorithm]
name = "{name}"
[algorithm.local]
lr = {lr}
"""
"""A small regression."""


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


def test_an_experiment_without_a_key_runs_without_its_one_value(umbel: Shell) -> None:
    words = ("compare", "both", "--seeds", "1", "--set", "rounds=1")
    _, errors = umbel(*words, "--set", "algorithm.n_merge=3")
    assert errors == "fedavg: has no algorithm.n_merge, and runs without it\n"
    rows = json.loads(umbel("show", "runs/both", "--json")[0])
    assert [row["name"] for row in rows] == ["fedavg", "flacc"]
    message = umbel.refused(*words, "--set", "rouns=3")
    assert message.endswith(
        "--set rouns: unknown key: no experiment of both has it; did you mean rounds?"
    )


def test_the_hint_for_a_key_knows_what_no_experiment_says(umbel: Shell) -> None:
    for setting, meant in {
        "algorithm.shred": "share",
        "algorithm.restart": "restarts",
        "metric": "metrics",
        "personal.epoch": "epochs",
    }.items():
        message = umbel.refused("compare", "both", "--set", f"{setting}=1")
        assert message.endswith(f"no experiment of both has it; did you mean {meant}?")


def test_a_key_that_needs_another_beside_it_is_no_hint_for_itself(umbel: Shell) -> None:
    message = umbel.refused("compare", "both", "--set", "algorithm.keep=lowest-loss")
    assert message.endswith("algorithm.keep: unknown key: no experiment of both has it")


def test_runs_that_can_not_be_judged_are_shown_and_those_that_failed_are_named(
    umbel: Shell,
) -> None:
    for name, lr in (("fedavg", 0.01), ("flacc", 1e30)):
        file = umbel.folder / "both" / f"{name}.toml"
        file.write_text(LINES.format(name=name, lr=lr))
    words = ("compare", "both", "--seeds", "1", "--judge", "accuracy")
    printed, errors = umbel(*words, status=2)
    assert "fedavg" in printed
    assert "loss" in printed
    *_, failed, judged = errors.splitlines()
    assert failed.startswith("umbel: flacc seed 0")
    assert judged == "umbel: judge: none of these runs has an accuracy"


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


def test_methods_are_named_beside_any_number_of_metrics_in_80_columns(umbel: Shell) -> None:
    names = ["macro-f1", "auroc", "log-loss", "perplexity"]
    metrics = f"metrics={json.dumps(names)}"
    umbel("compare", "both", "--seeds", "2", "--set", "rounds=2", "--set", metrics)
    lines = umbel("show", "runs/both")[0].splitlines()
    heads = [line.split() for line in lines if line.startswith("method")]
    assert heads[0][1:4] == ["accuracy", "worst", "ARI"]
    assert heads[1][1:] == names
    for name in ("fedavg", "flacc"):
        rows = [line for line in lines if line.startswith(f"{name} ")]
        assert len(rows[1].split()) == 5
    assert "…" not in "".join(lines)


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


@pytest.mark.parametrize("seeds", ["1", "2"])
def test_of_several_runs_the_one_that_can_not_go_on_is_named(seeds: str, umbel: Shell) -> None:
    words = ("compare", "both", "--seeds", seeds, "--set", "algorithm.local.lr=1e12")
    _, errors = umbel(*words, status=1)
    assert "umbel: fedavg seed" in errors
    assert ": training diverged for " in errors


@pytest.mark.parametrize("jobs", ["1", pytest.param("2", marks=pytest.mark.long)])
def test_what_can_not_start_is_named_before_another_is_trained(jobs: str, umbel: Shell) -> None:
    for name, method in (("flacc", "oracle"), ("fedavg", "fedavg")):
        text = SMALL.format(name=method).replace("rotated-digits", "few-labels")
        (umbel.folder / "both" / f"{name}.toml").write_text(text)
    message = umbel.refused("compare", "both", "--seeds", "2", "--jobs", jobs)
    assert message.startswith("umbel: flacc seed 0: scenario: ")
    assert not (umbel.folder / "runs").exists()


@pytest.mark.parametrize("other", ["", "participation = 0.25\n"], ids=["same", "other"])
@pytest.mark.parametrize("settings", [(), ("--set", "algorithm.local.lr=0.1,0.2")])
def test_two_files_of_one_name_are_refused_before_any_run(
    other: str, settings: tuple[str, ...], umbel: Shell
) -> None:
    text = SMALL.format(name="fedavg").replace("participation = 0.5\n", other)
    (umbel.folder / "both" / "zeal.toml").write_text('name = "fedavg"\n' + text)
    message = umbel.refused("compare", "both", "--seeds", "2", *settings)
    said = "is not unique: fedavg.toml and zeal.toml have it"
    assert message.startswith("umbel: name: 'fedavg")
    assert message.endswith(f"{said}; give each experiment a name of its own")
    assert not (umbel.folder / "runs").exists()


@pytest.mark.parametrize("seeds", ["1", "2"])
def test_of_several_runs_the_one_that_is_refused_is_named(seeds: str, umbel: Shell) -> None:
    (umbel.folder / "both" / "fedavg.toml").unlink()
    words = ("compare", "both", "--seeds", seeds, "--set", "scenario.examples=[4000]")
    which = "seed 0" if seeds == "1" else "seeds 0, 1"
    assert umbel.refused(*words).startswith(f"umbel: flacc {which}: scenario.examples: ")


def test_of_one_pair_of_methods_there_is_nothing_to_correct(umbel: Shell) -> None:
    printed, _ = umbel("compare", "both", "--seeds", "1")
    assert "Holm: the same, as there is one pair" in " ".join(printed.split())


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


@pytest.mark.parametrize("columns", ["20", "30", "40", "50"])
def test_in_a_narrow_terminal_all_methods_have_their_name(columns: str, umbel: Shell) -> None:
    umbel.monkeypatch.setenv("COLUMNS", columns)
    printed, _ = umbel("compare", "both", "--seeds", "1", "--set", "rounds=1")
    lines = [line.strip() for line in printed.splitlines()]
    assert sum(line.startswith(("fedavg ", "flacc ")) for line in lines) >= 2 + 2 + 1
    assert "\N{HORIZONTAL ELLIPSIS}" not in printed
