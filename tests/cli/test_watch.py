"""`umbel watch`: a run that another process is doing, by its files alone."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.processes import ended, start_umbel, wait_for_lines
from tests.shell import Shell
from umbel.cli import watch
from umbel.files.seals import json_text
from umbel.folder.how_to_continue import ROLL
from umbel.folder.run_folder import RunFolder
from umbel.report.terminal.watching import Pace
from umbel.run.records import Record


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "EVERY_SECONDS", 0.01)


def test_a_run_is_followed_until_it_is_finished(umbel: Shell) -> None:
    settings = ("--set", "rounds=40", "--set", "faults.drop=0.2", "--set", "limits.quorum=0")
    process = start_umbel(umbel.folder, "run", "both/flacc.toml", *settings)
    folder = RunFolder(umbel.folder / "runs" / "flacc-seed0")
    wait_for_lines(process, folder.file("records.jsonl"), 2)
    before, _ = umbel("watch", "runs/flacc-seed0", "--once")
    assert "runs/flacc-seed0: goes on" in before
    printed, errors = umbel("watch", "runs/flacc-seed0")
    assert (ended(process), errors) == (0, "")
    records = folder.records()
    lines = printed.splitlines()
    for record, line in zip(records, lines, strict=False):
        assert line.startswith(f"round {record.round + 1}/40  accuracy 0.")
        assert ("missing " in line) == bool(record.missing)
    assert lines[40].split() == ["run", "runs/flacc-seed0:", "finished"]
    assert "40 of 40" in printed
    assert any(record.missing for record in records)


def test_once_it_says_how_a_run_is_and_names_who_did_not_answer(umbel: Shell) -> None:
    umbel("run", "both/fedavg.toml")
    folder = RunFolder(umbel.folder / "runs" / "fedavg-seed0")
    folder.file("clusters.csv").unlink()  # as before its end
    folder.file(ROLL).write_text(json_text({"names": [f"site {n}" for n in range(8)]}))
    *some, last = folder.records()[:3]
    last = replace(last, missing=(2, 5), refused={7: "too long"}, measures={"drift": 0.5})
    folder.lines.write([*some, last])
    printed = umbel("watch", "runs/fedavg-seed0", "--once")[0]
    rows = dict(line.split("  ", 1) for line in printed.splitlines())
    said = {name.strip(): value.strip() for name, value in rows.items()}
    assert said["run"] == "runs/fedavg-seed0: goes on"
    assert said["rounds"] == "3 of 4"
    assert said["so far"] == f"accuracy {last.accuracy:.3f}, after round 3"
    assert said["missing"] == "2 clients: site 2, site 5 in round 3"
    assert said["refused"] == "1 client: site 7 in round 3"
    assert said["drift"] == "0.5"
    assert said["cluster 0"].startswith("8 clients: site 0, site 1, ")
    assert {"a round", "time left"} <= said.keys()


def test_a_run_without_a_round_and_a_stopped_one_say_so(umbel: Shell) -> None:
    umbel("run", "both/fedavg.toml", "--until", "loss=100")
    assert "stopped after 1 round: loss" in umbel("watch", "runs/fedavg-seed0", "--once")[0]
    for name in ("records.jsonl", "checkpoint.safetensors", "clusters.csv", "stopped.json"):
        (umbel.folder / "runs" / "fedavg-seed0" / name).unlink()
    printed = umbel("watch", "runs/fedavg-seed0", "--once")[0]
    assert "before its first round" in printed
    assert "0 of 4" in printed


def test_a_terminal_shows_one_table_that_changes(umbel: Shell) -> None:
    umbel("run", "both/fedavg.toml")
    umbel.monkeypatch.setenv("TTY_COMPATIBLE", "1")
    umbel.monkeypatch.setenv("FORCE_COLOR", "1")
    printed = umbel("watch", "runs/fedavg-seed0")[0]
    assert "finished" in printed
    assert "round 1/4" not in printed
    assert printed.endswith("\x1b[?25h")  # the cursor is back


def test_what_is_no_run_is_refused(umbel: Shell) -> None:
    (umbel.folder / "runs").mkdir()
    for name in ("gone", "runs", "both/fedavg.toml"):
        assert f"{name!r} is not the folder of a run" in umbel.refused("watch", name)


def test_the_pace_is_that_of_the_clock_once_rounds_were_seen_to_end() -> None:
    records = [Record(n, seconds=s) for n, s in enumerate((50.0, 2.0, 2.0, 2.0))]
    pace = Pace()
    for now, done in ((0.0, 0), (60.0, 1), (70.0, 2), (75.0, 2)):
        pace.note(now, done)
    assert pace.seconds(records) == 2.0
    pace.note(90.0, 4)
    assert pace.seconds(records) == 10.0  # without the first round, which has the start in it
    pace.note(91.0, 3)  # resumed
    assert pace.seconds(records) == 2.0
