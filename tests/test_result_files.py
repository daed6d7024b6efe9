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
