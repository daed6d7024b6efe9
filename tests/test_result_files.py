"""Files of benchmarks: looked at before anything is timed, added to, and shown as tables."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from benchmarks import __main__ as everything
from benchmarks import report, rounds
from benchmarks.stopwatch import PARTS

ADDED_TO = {"__main__": "clients", "rounds": "rounds", "precision": "speeds"}


def begun(*_: object) -> None:
    raise AssertionError("timed before the file was looked at")


@pytest.mark.parametrize("name", ADDED_TO)
def test_a_file_that_cannot_be_added_to_is_refused_before_anything_is_timed(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module: Any = importlib.import_module(f"benchmarks.{name}")
    monkeypatch.setattr(module, "pin", begun)
    file = tmp_path / "results.json"
    file.write_text(json.dumps({"machine": "elsewhere", ADDED_TO[name]: []}))
    with pytest.raises(SystemExit, match="from another machine: elsewhere"):
        module.main(["--json", str(file)])
    file.write_text('{"somebody": "else"}')
    with pytest.raises(SystemExit, match="results of another benchmark"):
        module.main(["--json", str(file)])
    with pytest.raises(SystemExit, match="there is no folder"):
        module.main(["--json", str(tmp_path / "away" / "results.json")])


def test_rounds_are_written_after_each_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def row(workload: str, *_: object) -> dict[str, Any]:
        if workload == "W2":
            raise KeyboardInterrupt
        numbers = dict.fromkeys((*PARTS, "seconds", "first", "slowest"), 1.0)
        return {"name": workload, "what": "", "method": "fedavg", "share_of_peak": None, **numbers}

    monkeypatch.setattr(rounds, "row_of", row)
    monkeypatch.setattr(rounds, "warm_up", lambda *_: None)
    monkeypatch.setattr(rounds, "pin", lambda: None)
    monkeypatch.setattr(rounds, "matmul_peak", lambda _: 1.0)
    with pytest.raises(KeyboardInterrupt):
        rounds.main(["--methods", "fedavg", "--json", str(tmp_path / "rounds.json")])
    kept = json.loads((tmp_path / "rounds.json").read_text())
    assert [row["name"] for row in kept["rounds"]] == ["W1"]


def test_shares_are_of_the_best_product_of_all_commands_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "results.json"

    def made(name: str, peak: float) -> None:
        about: everything.Row = {"machine": "mine", "device": "cpu", "peak_gflops": peak}
        shares = {"share_of_peak": 0.5, "plain_share_of_peak": 0.2, "peak_gflops": peak}
        numbers = dict.fromkeys(("seconds", "low", "high", "plain_seconds", "plain_low"), 1.0)
        more = dict.fromkeys(("plain_high", "ratio", "samples_per_second"), 1.0)
        none = dict.fromkeys(("goal", "memory_mb", "plain_memory_mb"))
        row = {"name": name, "what": "", "precision": "fp32", **numbers, **more, **none, **shares}
        everything.write(file, about, [row], [])

    made("W1", 80.0)
    made("W2", 100.0)
    made("W3", 50.0)
    text = report.markdown(json.loads(file.read_text()))
    assert "best matrix product reaches 100 GFLOP/s" in text
    shares = [line.split(" | ")[6:8] for line in text.splitlines() if line.startswith("| **W")]
    assert shares == [["40%", "16%"], ["50%", "20%"], ["25%", "10%"]]


@pytest.mark.parametrize("words", [["--rounds", "1"], ["--methods", "fedavgg"]])
def test_rounds_that_cannot_be_told_are_refused_before_anything_is_timed(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(rounds, "pin", begun)
    with pytest.raises(SystemExit):
        rounds.main(words)
    assert words[1] in capsys.readouterr().err.splitlines()[-1]


def test_results_are_written_after_each_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def set_up() -> SimpleNamespace:
        return SimpleNamespace(ours=["fp32"])

    monkeypatch.setattr(everything, "contests", lambda *_: {"W1": set_up, "W2": begun})
    monkeypatch.setattr(everything, "rows_of", lambda *_: [{"name": "W1"}])
    monkeypatch.setattr(everything, "print_rows", lambda *_: None)
    monkeypatch.setattr(everything, "pin", lambda: None)
    monkeypatch.setattr(everything, "matmul_peak", lambda _: 1.0)
    with pytest.raises(AssertionError):
        everything.main(["--json", str(tmp_path / "results.json")])
    kept = json.loads((tmp_path / "results.json").read_text())
    assert (kept["clients"], kept["server"]) == ([{"name": "W1"}], [])


def test_every_part_of_a_comparison_of_precisions_has_its_table() -> None:
    network = {"network": "a network", "full": 0.002, "half": 0.001, "taken": True}
    alone = {"machine": "mine", "networks": [network]}
    assert report.shown(alone) == report.precision_markdown(alone)
    assert "| a network | 2 | 1 | 2.00 | bf16 |" in report.shown(alone)
