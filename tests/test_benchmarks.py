"""What is timed gives equal results, and what the page tells is what was kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from benchmarks import attacks, growth, robust
from benchmarks.measure import difference
from benchmarks.products import KINDS, times_faster
from benchmarks.report import KEPT, PAGE, renewed
from benchmarks.rounds import measured, sizes
from benchmarks.server import STEPS
from benchmarks.stopwatch import PARTS
from benchmarks.workloads import contests


@pytest.mark.parametrize("name", ["W1", "W2 training", "W2 cross-loss", "W3", "W6, 12 clients"])
def test_every_way_gives_the_results_of_the_plain_loop(name: str) -> None:
    contest = contests(short=True, device="cpu")[name]()
    ways, plain = contest.checked or (contest.ours, contest.plain)
    expected = plain()
    for label, way in ways.items():
        assert max(map(difference, way(), expected)) <= contest.tolerance[label], label


@pytest.mark.parametrize("name", STEPS)
def test_the_steps_of_the_server_run(name: str) -> None:
    set_up, _, _ = STEPS[name]
    assert set_up(200)() is not None


def test_the_page_shows_the_kept_results() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == renewed(page)
    assert all(f"<!-- {name} -->" in page for name in KEPT)


def test_every_size_of_what_grows_has_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    growth.main(["--only", "clients", "--largest", "1000"])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("| clients")]
    assert [line.split(" | ")[1] for line in lines] == ["100", "1,000"]


@pytest.mark.parametrize("name", ["fedavg", "ifca", "cfl-gp"])
def test_the_parts_of_a_round_add_up_to_it(name: str) -> None:
    for taken in measured(sizes(short=True)["W1"], name, rounds=2):
        parts = [taken[part] for part in PARTS]
        assert min(parts) >= 0
        assert taken["engine"] > 0
        assert taken["evaluation"] > 0
        assert sum(parts) <= 1.01 * taken["whole"] + 0.001


def test_rounds_with_robust_rules_are_timed(capsys: pytest.CaptureFixture[str]) -> None:
    small = ["--clients", "6", "--examples", "4", "--hidden", "3", "--rounds", "1"]
    robust.main([*small, "--rules", "mean", "krum"])
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["mean", "krum"]


@pytest.mark.parametrize("kind", KINDS)
def test_products_of_every_kind_are_timed(kind: str) -> None:
    assert times_faster(KINDS[kind]((4, 8, 6)), repeats=1) > 0


def test_runs_of_attacks_are_made_once_and_tables_have_a_line_for_each(tmp_path: Path) -> None:
    kept, page = tmp_path / "rows.jsonl", tmp_path / "tables.md"
    words = ["--json", str(kept), "--markdown", str(page), "--seeds", "1", "--jobs", "1"]
    words += ["--attacks", "none", "sign-flip 10", "--methods", "flacc", "--defences"]
    attacks.main([*words, "mean"])
    attacks.main([*words, "mean", "mean+quarantine"])
    rows = [json.loads(line) for line in kept.read_text().splitlines()]
    assert [row["defence"] for row in rows] == ["mean"] * 2 + ["mean+quarantine"] * 2
    assert [row["attackers_named"] for row in rows[2:]] == [0, 1]
    assert page.read_text().count("| sign-flip 10 |") == 3
