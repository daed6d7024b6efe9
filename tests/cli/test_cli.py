"""The command line as a user meets it: what it prints, and how it refuses."""

from __future__ import annotations

import json
import logging
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.shell import Shell
from umbel.cli import Once
from umbel.data.sources import DATA_DIR_VARIABLE
from umbel.folder.run_folder import RunFolder


def test_run_prints_a_line_a_round_and_what_it_came_to(umbel: Shell) -> None:
    printed, errors = umbel("run", "both/flacc.toml", "--seed", "3", "--set", "rounds=5")
    lines = printed.splitlines()
    assert lines[0].startswith("flacc seed 3  round 1/5  accuracy 0.")
    assert lines[4].startswith("flacc seed 3  round 5/5")
    assert "ARI" in printed
    assert "planted groups" in printed
    assert not errors
    folder = RunFolder.open(umbel.folder / "runs" / "flacc-seed3")
    assert folder.finished
    assert folder.experiment.seed == 3


def test_compare_prints_one_table_with_every_method(umbel: Shell) -> None:
    printed, _ = umbel("compare", "both", "--seeds", "2")
    for word in ("accuracy", "worst", "ARI", "purity", "K", "down", "up", "fedavg", "flacc"):
        assert word in printed
    assert "2 seeds" in printed
    assert max(map(len, printed.splitlines())) <= 80
    assert sorted(path.name for path in (umbel.folder / "runs" / "both").iterdir()) == [
        "fedavg-seed0",
        "fedavg-seed1",
        "flacc-seed0",
        "flacc-seed1",
    ]


def test_compare_again_runs_nothing_again_and_goes_on_where_it_stopped(umbel: Shell) -> None:
    umbel("compare", "both", "--seeds", "1")
    (umbel.folder / "runs" / "both" / "flacc-seed0" / "clusters.csv").unlink()
    printed, _ = umbel("compare", "both", "--seeds", "1")
    assert "fedavg-seed0: finished already" in printed
    assert "flacc-seed0: finished already" not in printed


def test_compare_names_what_differs_from_the_experiment_of_a_folder(umbel: Shell) -> None:
    umbel("compare", "both", "--seeds", "1")
    changed = ("--set", "rounds=9", "--set", "engine.workers=2")
    message = umbel.refused("compare", "both", "--seeds", "1", *changed)
    said = "fedavg-seed0: holds another experiment (rounds was 4 and is 9)"
    assert f"{said}; choose another --runs-dir" in message


def test_show_prints_a_run_or_a_comparison(umbel: Shell) -> None:
    umbel("compare", "both", "--seeds", "1")
    assert "accuracy, worst client" in umbel("show", "runs/both/fedavg-seed0")[0]
    assert "flacc" in umbel("show", "runs/both")[0]
    assert "is not the folder of a run" in umbel.refused("show", "both")


def test_resume_finishes_a_run_and_says_when_there_is_nothing_to_do(umbel: Shell) -> None:
    umbel("run", "both/flacc.toml")
    run = umbel.folder / "runs" / "flacc-seed0"
    (run / "clusters.csv").unlink()
    assert "accuracy, mean over clients" in umbel("resume", "runs/flacc-seed0")[0]
    assert (run / "clusters.csv").exists()
    assert "finished already" in umbel("resume", "runs/flacc-seed0")[0]


def test_help_and_version(umbel: Shell) -> None:
    assert "Usage: umbel" in umbel("--help")[0]
    assert "umbel, version" in umbel("--version")[0]


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("scenario.clients=2", "clients: 2 is not at least one for each of 4 groups"),
        ("scenario.examples=[9999]", "examples: 9999 is not few enough: 8 clients share 1797"),
        ("scenario={name='shifted', clients=5000}", "clients: 5000 is not few enough: they share"),
        ("scenario.test_fraction=0.999", "test_fraction: 0.999 is not low enough: of the 40"),
        ("scenario.source=mnist", "source: 'mnist' is not in the data directory: there is no file"),
        ("engine.device=cuda:99", "engine.device: 'cuda:99' is not available here"),
    ],
)
def test_bad_settings_end_in_one_line(setting: str, message: str, umbel: Shell) -> None:
    umbel.monkeypatch.setenv(DATA_DIR_VARIABLE, str(umbel.folder))
    assert message in umbel.refused("run", "both/flacc.toml", "--set", setting)


def test_names_and_files_that_are_not_there_are_refused(umbel: Shell) -> None:
    assert "'flac-digits' is not known; did you mean flacc-digits" in umbel.refused(
        "run", "flac-digits"
    )
    assert "'.' is not known; `umbel list` shows" in umbel.refused("run", ".")
    assert "can't be read: No such file" in umbel.refused("run", "gone.toml")
    assert "is not known" in umbel.refused("compare", "gone")
    for folder in ("rotated-digits", "both"):
        several = (
            f"experiment: '{folder}' is a folder of several experiments; `umbel compare {folder}"
        )
        assert several in umbel.refused("run", folder)
    for name in ("flacc-digits", "both/fedavg.toml"):
        one = f"folder: '{name}' is one experiment: `umbel run {name}` runs it"
        assert one in umbel.refused("compare", name)
    (umbel.folder / "few.csv").write_text("client,x,y\n")
    assert "'few.csv' is a file, and not of an experiment" in umbel.refused("compare", "few.csv")
    (umbel.folder / "ifca-digits").mkdir()  # a folder comes before an experiment of its name
    assert "'ifca-digits' holds no experiment" in umbel.refused("compare", "ifca-digits")
    assert "'gone' is not the folder of a run" in umbel.refused("resume", "gone")
    missing = umbel.refused("run", "both/flacc.toml", "--data-dir", "gone")
    assert re.search("--data-dir: '/.*/gone' is not an existing directory", missing)
    umbel.monkeypatch.setenv(DATA_DIR_VARIABLE, "away")
    missing = umbel.refused("run", "both/flacc.toml")
    assert re.search(f"{DATA_DIR_VARIABLE}: .*/away. is not an existing directory", missing)


def test_a_run_folder_that_is_taken_broken_or_in_use_is_refused(umbel: Shell) -> None:
    umbel("run", "both/flacc.toml")
    message = umbel.refused("run", "both/flacc.toml")
    assert "holds a finished run; see its results by `umbel show" in message
    assert 'or umbel.load("runs/' in message
    assert message.endswith(
        "or choose another folder, on the command line by --runs-dir or --set name=..."
    )
    folder = RunFolder.open(umbel.folder / "runs" / "flacc-seed0")
    folder.file("clusters.csv").unlink()
    with folder.locked():
        assert "in use: another process" in umbel.refused("resume", "runs/flacc-seed0")
    folder.file("checkpoint.safetensors").write_bytes(b"?")
    assert "not a readable checkpoint" in umbel.refused("resume", "runs/flacc-seed0")
    folder.file("experiment.toml").write_text("rounds = -1")
    assert "scenario: missing" in umbel.refused("resume", "runs/flacc-seed0")


def test_a_folder_of_clients_with_a_fault_is_refused(umbel: Shell) -> None:
    clients = umbel.folder / "clients"
    clients.mkdir()
    x = np.zeros((5, 4), np.float32)
    np.savez(clients / "a.npz", x=x, y=np.array([0, 1, 2, 1, 0]))
    settings = ("--set", "scenario={name='folder', path='clients', num_classes=2}")
    message = umbel.refused("run", "both/fedavg.toml", *settings)
    assert "client a: a label is above 1, and not in 0 to 1" in message
    np.savez(clients / "a.npz", x=x[:0], y=np.zeros(0, np.int64))
    message = umbel.refused("run", "both/fedavg.toml", *settings)
    assert "client a: 0 is not a positive number of training examples" in message


def test_where_nothing_can_be_written_it_says_so(umbel: Shell) -> None:
    (umbel.folder / "runs").write_text("a file")
    for command in ("run", "both/flacc.toml"), ("compare", "both"):
        message = umbel.refused(*command)
        assert "--runs-dir: 'runs' is not a folder to write in: " in message
        assert "Errno" not in message


def test_show_says_who_was_absent_how_often_and_why(umbel: Shell) -> None:
    umbel("run", "both/fedavg.toml", "--set", "rounds=2", "--set", "participation=1.0")
    assert "absent" not in umbel("show", "runs/fedavg-seed0")[0]
    folder = RunFolder.open(umbel.folder / "runs" / "fedavg-seed0")
    first, second = folder.records()
    first = replace(first, missing=(1, 4), refused={6: "update: nan", 7: "shape"})
    second = replace(second, missing=(4,), refused={1: "late", 7: "shape"})
    folder.lines.write([first, second])
    printed, _ = umbel("show", "runs/fedavg-seed0")
    table = printed[printed.index("absent client") :].replace("│", " ").splitlines()
    assert [line.split() for line in table[2:6]] == [
        ["1", "1", "1", "no", "answer"],
        ["4", "2", "0", "no", "answer"],
        ["7", "0", "2", "shape"],
        ["6", "0", "1", "update:", "nan"],
    ]
    assert "4 clients were absent at times, in 2 of 2 rounds" in printed
    settings = ("faults.drop=0.4", "limits.quorum=0.0", "name='dropping'")
    printed, _ = umbel("run", "both/fedavg.toml", *(f"--set={setting}" for setting in settings))
    assert "no answer" in printed


def test_below_the_quorum_a_run_fails_and_says_how_to_go_on(umbel: Shell) -> None:
    _, errors = umbel("run", "both/flacc.toml", "--set", "faults.drop=1", status=1)
    (line,) = errors.strip().splitlines()
    assert "round 0: 0 of 4 clients gave a usable reply" in line
    assert "a run keeps its limits and faults" in line
    # They are the same again.
    assert line.endswith("to change them choose another --runs-dir or name")


def test_wrong_words_on_the_command_line_are_refused(umbel: Shell) -> None:
    _, errors = umbel("run", status=2)
    assert "Missing argument 'EXPERIMENT'" in errors
    _, errors = umbel("export", "runs", status=2)
    assert "Missing option '--to'. Choose from: tensorboard, mlflow, onnx" in errors
    _, errors = umbel("fly", status=2)
    assert "No such command 'fly'" in errors
    _, errors = umbel("compare", "both", "--seeds", "0", status=2)
    assert "0 is not in the range 1<=x<=10000; see umbel compare --help" in errors


def test_on_a_terminal_progress_is_one_live_line(
    umbel: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    printed, _ = umbel("run", "both/flacc.toml")
    assert "round 4/4" in printed
    assert "s left" not in printed
    assert printed.count("\n") < 60


@pytest.mark.usefixtures("newcomers")
def test_assign_gives_newcomers_a_cluster_with_the_score_of_each(umbel: Shell) -> None:
    umbel("run", "both/fedavg.toml", "--set", "algorithm.name=ifca")
    run = "runs/fedavg-seed0"
    printed, _ = umbel("assign", run, "newcomers")
    assert "north" in printed
    assert "south" in printed
    assert "score of 0" in printed
    assert "training loss; the lowest wins" in printed
    alone, _ = umbel("assign", run, "newcomers/south.npz")
    assert "north" not in alone


def test_assign_names_newcomers_that_fit_no_cluster(umbel: Shell, newcomers: Path) -> None:
    umbel("run", "both/fedavg.toml")
    rng = np.random.default_rng(0)
    for name, scale in (("zeros", 0.0), ("strange", 50.0)):
        x, y = rng.normal(size=(20, 1, 8, 8)) * scale, np.arange(20) % 10
        np.savez(newcomers / f"{name}.npz", x=x.astype(np.float32), y=y)
    printed, _ = umbel("assign", "runs/fedavg-seed0", "newcomers")
    assert "worse than all clients of the run do: strange (" in " ".join(printed.split())
    rows = json.loads(umbel("assign", "runs/fedavg-seed0", "newcomers", "--json")[0])
    unlike = {row["client"]: row["unlike_the_run"] for row in rows}
    assert unlike["strange"]
    assert not unlike["north"]


def test_assign_refuses_what_does_not_fit(umbel: Shell, newcomers: Path) -> None:
    umbel("run", "both/flacc.toml")
    run = "runs/flacc-seed0"
    assert "stopped before its clusters separated" in umbel.refused("assign", run, "newcomers")
    np.savez(newcomers / "odd.npz", x=np.zeros((3, 1, 9, 9)), y=np.zeros(3, dtype=int))
    message = umbel.refused("assign", run, "newcomers/odd.npz")
    assert "client odd: shape of an input: (1, 9, 9) is not (1, 8, 8), the run's" in message
    np.savez(newcomers / "odd.npz", x=np.zeros((3, 1, 8, 8)), y=np.full(3, 10))
    assert "a label is above 9" in umbel.refused("assign", run, "newcomers/odd.npz")
    np.savez(newcomers / "odd.npz", x=np.zeros((3, 1, 8, 8)), y=np.zeros(3))
    message = umbel.refused("assign", run, "newcomers/odd.npz")
    assert "client odd: y: 'floating-point numbers' is not labels of 10 classes" in message
    umbel("run", "both/fedavg.toml")
    for file in ("checkpoint.safetensors", "models/cluster-0.safetensors"):
        (umbel.folder / "runs/fedavg-seed0" / file).write_bytes(b"damaged")
        assert "not a readable" in umbel.refused(
            "assign", "runs/fedavg-seed0", "newcomers/north.npz"
        )
    (umbel.folder / run / "clusters.csv").unlink()
    assert "not finished" in umbel.refused("assign", run, "newcomers")
    # As the server of a Flower app leaves it.
    (umbel.folder / run / "nodes.json").touch()
    for words in (("assign", run, "newcomers"), ("resume", run), ("finish", run)):
        assert "a run over Flower" in umbel.refused(*words)


@pytest.mark.thorough
def test_clusters_are_counted_where_a_method_keeps_vectors(umbel: Shell) -> None:
    umbel("run", "cfl-gp-digits", "--set", "rounds=5")
    command = ("estimate-clusters", "runs/cfl-gp-digits-seed0")
    printed, _ = umbel(*command, "--plot", "count.png")
    assert "largest gap" in printed
    assert "gap statistic" in printed
    assert "4 clusters (sure): by chance, 0.5% of clients" in printed
    assert (umbel.folder / "count.png").is_file()
    (row,) = json.loads(umbel(*command, "--json")[0])
    assert (row["clusters"], row["largest_gap"], row["certainty"]) == (4, 4, "sure")
    message = umbel.refused(*command, "--plot", "count.foo")
    assert "--plot: 'count.foo' is not a file that ends in .png, .svg, .pdf" in message
    umbel("run", "both/flacc.toml")
    message = umbel.refused("estimate-clusters", "runs/flacc-seed0")
    assert "a method that keeps such vectors" in message


def test_show_prints_the_course_of_a_comparison(umbel: Shell) -> None:
    umbel("compare", "both", "--seeds", "2")
    printed, _ = umbel("show", "runs/both", "--at", "1, 4")
    assert "round 4" in printed
    assert "flacc" in printed
    printed, _ = umbel("show", "runs/both", "--reach", "purity=0.2")
    assert "rounds to purity 0.2" in printed
    assert "2 of 2" in printed
    assert "--at: '1;2' is not of the form" in umbel.refused("show", "runs/both", "--at", "1;2")
    message = umbel.refused("show", "runs/both", "--at", "4,5")
    assert "--at: 5 is not a round of the run: 1 to 4" in message
    message = umbel.refused("show", "runs/both", "--reach", "purty=0.9")
    assert "--reach: 'purty' is not any of accuracy, accuracy_std" in message
    assert "of the form purity=0.9" in umbel.refused("show", "runs/both", "--reach", "purity")
    assert "'missing' is not any of" in umbel.refused("show", "runs/both", "--reach", "missing=3")


def test_a_comparison_of_regressions_is_by_loss(umbel: Shell) -> None:
    settings = ["--set", "rounds=3", "--set", "scenario.examples=40"]
    printed, _ = umbel("compare", "linear-regressions", "--seeds", "1", *settings)
    assert "loss: mean over clients" in printed
    assert "accuracy" not in printed
    assert "cfl-gp" in printed
    assert "-linear" not in printed.splitlines()[-8]  # what all names end in is left out


def test_a_warning_of_several_runs_is_shown_once() -> None:
    once, texts = Once(), ("column 'id'", "column 'id'", "another")
    records = [logging.makeLogRecord({"msg": "t.csv: %s", "args": (text,)}) for text in texts]
    assert [once.filter(record) for record in records] == [True, False, True]
