"""What the command line prints for programs, and settings, words and losses for people."""

from __future__ import annotations

import csv
import io
import json
import logging

import pytest

import umbel as library
from tests.federations import blobs, mlp
from tests.shell import Shell
from umbel.result.run import read

VALIDATED = ("--set", "scenario.validation_fraction=0.5")


def rows_of(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_compare_prints_rows_alone_and_progress_beside_them(umbel: Shell) -> None:
    printed, errors = umbel("compare", "both", "--seeds", "2", "--json")
    rows = json.loads(printed, parse_constant=pytest.fail)
    assert [(row["name"], row["seed"]) for row in rows] == [
        *(("fedavg", 0), ("fedavg", 1)),
        *(("flacc", 0), ("flacc", 1)),
    ]
    assert "round 4/4" in errors
    again, _ = umbel("compare", "both", "--seeds", "2", "--csv")
    assert [row["accuracy"] for row in rows_of(again)] == [str(row["accuracy"]) for row in rows]


def test_show_prints_runs_rounds_and_clients_as_rows(umbel: Shell) -> None:
    umbel("compare", "both", "--seeds", "1")
    assert len(rows_of(umbel("show", "runs/both", "--csv")[0])) == 2
    assert len(rows_of(umbel("show", "runs/both", "--csv", "--rows", "rounds")[0])) == 8
    clients = json.loads(umbel("show", "runs/both/flacc-seed0", "--json", "--rows", "clients")[0])
    assert [client["client"] for client in clients] == [str(n) for n in range(8)]
    rounds = json.loads(umbel("show", "runs/both", "--json", "--at", "2,4")[0])
    assert [row["round"] for row in rounds] == [2, 4, 2, 4]
    found = json.loads(umbel("show", "runs/both", "--json", "--reach", "purity=0.2")[0])
    assert [row["round"] for row in found] == [1, 1]
    never = json.loads(umbel("show", "runs/both", "--json", "--reach", "accuracy=1.5")[0])
    assert [row["round"] for row in never] == [None, None]
    for name in ("purty", "round", "missing", "seed"):
        asked = ("show", "runs/both", "--reach", f"{name}=1")
        refused = [umbel.refused(*asked, *form) for form in ((), ("--json",))]
        assert refused[0] == refused[1]
        assert f"--reach: '{name}' is not any of accuracy, accuracy_std" in refused[0]


@pytest.mark.usefixtures("newcomers")
def test_assign_prints_rows(umbel: Shell) -> None:
    umbel("run", "both/fedavg.toml", "--set", "algorithm.name=ifca")
    rows = json.loads(umbel("assign", "runs/fedavg-seed0", "newcomers", "--json")[0])
    assert [row["client"] for row in rows] == ["north", "south"]
    for row in rows:
        scores = [row[name] for name in row if name.startswith("score_")]
        assert scores[row["cluster"]] == min(scores)


def test_show_prints_the_settings_of_a_run(umbel: Shell) -> None:
    umbel("run", "both/flacc.toml", "--set", "rounds=2")
    printed, _ = umbel("show", "runs/flacc-seed0", "--config")
    again = umbel.folder / "again.toml"
    again.write_text(printed)
    assert read(again) == read(umbel.folder / "runs/flacc-seed0/experiment.toml")
    assert "rounds = 2" in printed
    assert "is not the folder of a run" in umbel.refused("show", "both", "--config")
    (umbel.folder / "runs/flacc-seed0/experiment.toml").write_bytes(b'name = "caf\xe9"')
    assert "can't be read" in umbel.refused("show", "runs/flacc-seed0", "--config")


@pytest.mark.parametrize("arguments", [("-v", "list"), ("list", "-v")])
def test_more_can_be_said_wherever_the_option_stands(
    arguments: tuple[str, ...], umbel: Shell
) -> None:
    umbel("list")
    assert logging.getLogger("umbel").level == logging.WARNING
    umbel(*arguments)
    assert logging.getLogger("umbel").level == logging.INFO
    assert logging.getLogger().level == logging.WARNING
    umbel("list")
    assert logging.getLogger("umbel").level == logging.WARNING


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("umbel ", "estimate-clusters"),
        ("umbel run flacc-dig", "flacc-digits"),
        ("umbel show runs/bo", "runs/both/flacc-seed0"),
        ("umbel run --se", "--seed"),
    ],
)
def test_the_shell_completes_names(words: str, wanted: str, umbel: Shell) -> None:
    run = umbel.folder / "runs" / "both" / "flacc-seed0"
    run.mkdir(parents=True)
    (run / "experiment.toml").touch()
    umbel.monkeypatch.setenv("_UMBEL_COMPLETE", "bash_complete")
    umbel.monkeypatch.setenv("COMP_WORDS", words)
    umbel.monkeypatch.setenv("COMP_CWORD", str(len(words.split(" ")) - 1))
    printed, _ = umbel()
    assert wanted in [line.partition(",")[2] for line in printed.splitlines()]


def test_a_loss_is_reached_where_it_is_low_enough(umbel: Shell) -> None:
    umbel("run", "both/fedavg.toml")
    first, *_, last = json.loads(
        umbel("show", "runs/fedavg-seed0", "--json", "--rows", "rounds")[0]
    )
    goal = f"loss={(first['loss'] + last['loss']) / 2:.6f}"
    assert last["loss"] < first["loss"]
    printed, _ = umbel("show", "runs/fedavg-seed0", "--json", "--reach", goal)
    assert json.loads(printed)[0]["round"] > 1
    assert "1 of 1" in umbel("show", "runs/fedavg-seed0", "--reach", goal)[0]
    assert "0 of 1" in umbel("show", "runs/fedavg-seed0", "--reach", "loss=0.0001")[0]


def test_what_rounds_are_judged_by_is_one_answer_for_people_and_programs(umbel: Shell) -> None:
    umbel("run", "both/fedavg.toml", *VALIDATED)
    rounds = json.loads(umbel("show", "runs/fedavg-seed0", "--json", "--rows", "rounds")[0])
    best = max(rounds[:-1], key=lambda row: row["validation_accuracy"])
    goal = f"accuracy={best['validation_accuracy'] - 1e-6:.6f}"
    first = next(
        r for r in rounds if r["validation_accuracy"] >= best["validation_accuracy"] - 1e-6
    )
    assert all(row["accuracy"] is None for row in rounds[:-1])
    said = json.loads(umbel("show", "runs/fedavg-seed0", "--json", "--reach", goal)[0])
    assert said[0]["round"] == first["round"]
    table = umbel("show", "runs/fedavg-seed0", "--reach", goal)[0]
    assert f"{float(first['round'])}" in table
    assert "1 of 1" in table


def test_a_course_says_whose_numbers_are_of_validation_examples(umbel: Shell) -> None:
    umbel("run", "both/fedavg.toml", "--runs-dir", "runs/both")
    assert "validation" not in umbel("show", "runs/both", "--at", "1")[0]
    umbel("run", "both/flacc.toml", "--runs-dir", "runs/both", *VALIDATED)
    lines = umbel("show", "runs/both", "--at", "1")[0].splitlines()
    (tested,) = (line.split() for line in lines if line.startswith("fedavg"))
    (validated,) = (line.split() for line in lines if line.startswith("flacc"))
    assert (tested[1], validated[1]) == ("test", "validation")
    assert "do not compare them with others" in " ".join(" ".join(lines).split())


def test_a_run_refused_before_its_first_round_leaves_nothing_behind(umbel: Shell) -> None:
    errors = umbel.refused("run", "both/fedavg.toml", "--set", "objective=regression")
    assert 'objective = "classification"' in errors
    assert not (umbel.folder / "runs" / "fedavg-seed0").exists()
    taken = umbel.folder / "runs" / "fedavg-seed0"
    taken.mkdir(parents=True)
    (taken / "notes.txt").write_text("mine")
    umbel.refused("run", "both/fedavg.toml", "--set", "objective=regression")
    assert [file.name for file in taken.iterdir()] == ["notes.txt"]


def test_divergence_says_how_to_run_it_otherwise(umbel: Shell) -> None:
    _, errors = umbel("run", "both/fedavg.toml", "--set", "algorithm.local.lr=1e9", status=1)
    assert "run it again with another --set algorithm.local.lr=" in errors
    assert "umbel resume" not in errors


def test_show_says_over_how_many_clients_means_are(umbel: Shell) -> None:
    federation = blobs()
    pairs = [federation.test.of(client) for client in range(federation.num_clients)]
    test = [(x[:0], y[:0]) if client < 2 else (x, y) for client, (x, y) in enumerate(pairs)]
    train = [federation.train.of(client) for client in range(federation.num_clients)]
    some = library.Federation.from_arrays(train, test, num_classes=federation.num_classes)
    for name, data in (("all", federation), ("some", some)):
        library.Run(library.FedAvg(), data, mlp()).save(umbel.folder / name, rounds=1)
    whole = federation.num_clients
    printed = umbel("show", "some")[0].replace("│", " ")
    assert f"clients judged {whole - 2} of {whole}" in " ".join(printed.split())
    assert "clients judged" not in umbel("show", "all")[0]
