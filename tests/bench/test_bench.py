"""All methods side by side: choices of settings, runs that go on, what is left out, the page."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from shutil import rmtree
from typing import Any

import pytest

from tests.shell import Shell
from umbel.algorithms import ALGORITHMS
from umbel.bench.page import when
from umbel.bench.plan import TABLE, Bench, best
from umbel.checks import UsageError
from umbel.cli.bench import SIZES

BENCH = Bench.of("reduced")

SHORT = ("bench", "--size", "smoke", "--scenarios", "label-skew")

OWN = """
from dataclasses import dataclass

from umbel.algorithms import FedAvg as Base


@dataclass(frozen=True)
class Renamed(Base):
    \"\"\"FedAvg under another name.\"\"\"
"""


def made(umbel: Shell, *arguments: str) -> tuple[dict[str, Any], str]:
    """The numbers of a bench, and what it printed."""
    printed, _ = umbel(*SHORT, *arguments)
    file = umbel.folder / "runs" / "bench-smoke" / "bench.json"
    return json.loads(file.read_text(encoding="utf-8")), printed


def untimed(table: dict[str, Any]) -> list[dict[str, Any]]:
    (one,) = table["scenarios"]
    return [{**row, "seconds": 0} for row in one["runs"]]


def test_two_methods_end_on_a_page_and_only_a_lost_run_is_made_again(umbel: Shell) -> None:
    first, printed = made(umbel, "--methods", "fedavg,local-only")
    assert "about" in printed
    assert "label-skew is done, 1 of 1: about 0 seconds left" in printed
    (one,) = first["scenarios"]
    assert Counter(row["name"] for row in one["runs"]) == {"fedavg": 2, "local-only": 2}
    assert one["chosen"]["fedavg"]["algorithm.local.lr"] in BENCH.scenarios["label-skew"].lr
    (pair,) = one["pairs"]
    assert {pair["method"], pair["other"]} == {"fedavg", "local-only"}
    assert (pair["seeds"], pair["pairs"]) == (2, 40)
    seeds = pair["decided_by_seeds"]
    assert (f"decided by seed {seeds[0]}" in str(one["marks"])) if seeds else not one["marks"]
    page = (umbel.folder / "runs" / "bench-smoke" / "bench.md").read_text(encoding="utf-8")
    assert "## Which method when" in page
    assert page.count("\n| fedavg | one model | ") == 1
    assert page.count("\n| local-only | personal | ") == 1
    lost = umbel.folder / "runs" / "bench-smoke" / "label-skew" / "fedavg-seed1"
    kept = lost.with_name("fedavg-seed0") / "records.jsonl"
    before = kept.stat().st_mtime_ns
    rmtree(lost)
    again, printed = made(umbel, "--methods", "fedavg,local-only")
    assert [line for line in printed.splitlines() if "round" in line] == [
        line for line in printed.splitlines() if line.startswith("fedavg seed 1")
    ]
    assert kept.stat().st_mtime_ns == before
    assert untimed(again) == untimed(first)


def test_a_method_of_ones_own_takes_part_and_one_that_does_the_same_is_marked(
    umbel: Shell,
) -> None:
    (umbel.folder / "renamed_method.py").write_text(OWN)
    table, _ = made(umbel, "--methods", "fedavg,fedlease", "--add", "renamed_method.py")
    (one,) = table["scenarios"]
    assert one["marks"]["Renamed"] == ["equals fedavg bit for bit"]
    assert one["marks"]["fedavg"] == ["equals Renamed bit for bit"]
    assert list(one["left_out"]) == ["fedlease"]
    assert "no adapters" in one["left_out"]["fedlease"]
    page = (umbel.folder / "runs" / "bench-smoke" / "bench.md").read_text(encoding="utf-8")
    assert "Left out: fedlease: net: no adapters" in page
    assert "\n| Renamed | - | " in page
    assert "--no-import" in umbel.refused(*SHORT, "--add", "renamed_method.py", "--no-import")
    (umbel.folder / "two_methods.py").write_text(OWN + OWN.replace("Renamed", "Other"))
    said = umbel.refused(*SHORT, "--add", "two_methods.py")
    assert "a file with one method; it has ['Renamed', 'Other']" in said
    assert "did you mean fedavg" in umbel.refused(*SHORT, "--methods", "fedavgs")


def test_the_page_says_which_methods_are_in_front(umbel: Shell) -> None:
    made(umbel, "--methods", "ifca,clove,oracle", "--jobs", "2")
    page = (umbel.folder / "runs" / "bench-smoke" / "bench.md").read_text(encoding="utf-8")
    (front,) = (line for line in page.splitlines() if line.startswith("- label-skew: "))
    assert "clove" in front or "ifca" in front
    assert "oracle" not in front  # it is told the groups
    assert "No clusters are needed" not in front
    assert "\n| oracle | " in page


def test_a_scenario_without_its_data_is_left_out_with_the_reason(
    umbel: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UMBEL_DATA_DIR", str(umbel.folder))
    umbel("bench", "--scenarios", "watch", "--methods", "fedavg", "--page", "docs/all.md")
    page = (umbel.folder / "docs" / "all.md").read_text(encoding="utf-8")
    assert "Left out: fedavg: scenario.source: " in page
    assert [*when([])] == []


@pytest.mark.parametrize("size", SIZES)
def test_every_method_has_experiments_on_every_scenario_or_a_reason(size: str) -> None:
    bench = Bench.of(size)
    assert {*bench.methods, *bench.left_out} >= {*ALGORITHMS}
    refused: dict[str, str] = {}
    for scenario in bench.scenarios.values():
        for method in bench.methods:
            choice = bench.choices(scenario, method)[-1]
            assert "algorithm.local.lr" in choice, method
            try:
                made = bench.experiment(scenario, method, choice, method, 0)
            except UsageError as error:
                refused[method] = str(error)
                continue
            assert made.rounds == made.evaluate_every == scenario.experiment["rounds"]
            clusters = getattr(made.algorithm, "num_clusters", None)
            assert clusters in (None, 1, *scenario.clusters)
    assert {*refused} == {"sattler"}
    assert refused["sattler"].startswith("participation: 0.5 is not 1")


def test_trials_take_all_values_of_a_setting_about_equally_often() -> None:
    scenario = BENCH.scenarios["watch"]
    ifca, fedprox = (BENCH.choices(scenario, name) for name in ("ifca", "fedprox"))
    rates = [choice["algorithm.local.lr"] for choice in ifca]
    assert sorted(rates) == scenario.lr
    assert rates == [choice["algorithm.local.lr"] for choice in fedprox]
    assert Counter(choice["algorithm.num_clusters"] for choice in ifca) == {2: 2, 3: 2, 5: 2}
    assert Counter(choice["algorithm.mu"] for choice in fedprox) == {0.01: 2, 0.1: 2, 1.0: 2}
    assert all("algorithm.num_clusters" not in choice for choice in fedprox)
    restarts = BENCH.choices(scenario, "ifca-restarts")
    assert len({*map(str, restarts)}) == BENCH.trials
    assert {choice["algorithm.restarts"] for choice in restarts} == {4}


def test_the_best_trial_is_the_first_of_the_highest() -> None:
    choices = [{"lr": rate} for rate in (0.1, 0.2, 0.3, 0.4)]
    assert best(choices, [0.5, 0.7, None, 0.7]) == {"lr": 0.2}
    assert best(choices, [-2.0, None, -1.0, None]) == {"lr": 0.3}
    assert best(choices, [None] * 4) is None


def test_the_table_names_methods_that_there_are() -> None:
    table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
    assert {settings["method"] for settings in BENCH.methods.values()} <= {*ALGORITHMS}
    assert {*table["left-out"]} <= {*ALGORITHMS}
    assert {*BENCH.scenarios} == {*table["scenarios"]}
