"""The page about a run whose suspicious clients are set aside."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.report.pages import Page, made
from umbel.algorithms.watched import QUARANTINE
from umbel.data.sources import Sources
from umbel.folder.execution import execute
from umbel.folder.run_folder import RunFolder
from umbel.report.figures.charts import Chart
from umbel.report.figures.drawing import spec
from umbel.report.pages.run_page import run_page
from umbel.report.quarantine import HEADS, MOST_GREY, MOST_NAMED, MOST_POINTS, evidence
from umbel.result.run import Result
from umbel.run.records import Record

WATCHED = ("rounds=5", "scenario.clients=8", "limits.quarantine=3.5")
LIARS = ("attack={kind='sign-flip', clients=['2', '5'], strength=10.0}",)


def result(*settings: str) -> Result:
    return Result(RunFolder.open(made("flacc-digits", *WATCHED, *settings)))


def section(run: Result) -> Page:
    pytest.importorskip("vl_convert", reason="the extra umbel[report] is not installed")
    return Page(run_page(run)[0])


def test_those_that_are_set_aside_are_drawn_in_colour_and_listed() -> None:
    run = result(*LIARS)
    found = evidence(run)
    assert found is not None
    panel, rows, count = found
    assert isinstance(panel.figure, Chart)
    assert panel.figure.limit == 3.5
    lines = {line.name: line for line in panel.figure.lines}
    assert {name for name, line in lines.items() if not line.muted} == {"2", "5"}
    assert lines["5"].y == tuple(record.suspicion[5] for record in run.records if record.suspicion)
    assert count == 2
    assert sorted(row[0] for row in rows) == ["2", "5"]
    for row in rows:
        aside = [r.round + 1 for r in run.records if int(row[0]) in r.quarantined]
        expected = [str(each) for each in (len(aside), aside[0], aside[-1])]
        assert [
            row[HEADS.index(head)] for head in ("rounds set aside", "first", "last")
        ] == expected
        assert row[HEADS.index("still")] == "yes"
    page = section(run)
    assert "Quarantine" in page.headings
    assert " ".join(HEADS) in " ".join(page.said.split())


def test_only_coloured_lines_are_in_the_legend_and_the_limit_is_dashed() -> None:
    found = evidence(result(*LIARS))
    assert found is not None
    drawn = spec(found[0].figure)
    line, _, rule, text = drawn["layer"]
    assert sorted(line["encoding"]["stroke"]["legend"]["values"]) == ["2", "5"]
    assert rule["mark"]["strokeDash"]
    assert rule["data"]["values"] == [{"y": 3.5}]
    assert text["mark"]["text"] == "limit 3.5"


def test_where_nobody_is_set_aside_there_is_the_figure_alone() -> None:
    run = result()
    found = evidence(run)
    assert found is not None
    assert (found[1], found[2]) == ([], 0)
    assert "0 clients that were set aside" in found[0].note
    assert "the longest first" not in section(run).said


def test_without_the_limit_there_is_no_section() -> None:
    run = Result(RunFolder.open(made("flacc-digits", *WATCHED[:2])))
    assert evidence(run) is None
    assert "Quarantine" not in section(run).headings


def test_clients_that_come_and_leave_have_gaps() -> None:
    events = "membership.events=[{round=1, joins=['7']}, {round=3, leaves=['5']}]"
    run = result(*LIARS, events, "membership.forget_after=0")
    found = evidence(run)
    assert found is not None
    assert isinstance(found[0].figure, Chart)
    lines = {line.name: line for line in found[0].figure.lines}
    assert [y == y for y in lines["7"].y] == [False, True, True, True, True]
    assert [y == y for y in lines["5"].y] == [True, True, True, False, False]
    (row,) = [row for row in found[1] if row[0] == "5"]
    assert row[HEADS.index("now")] == "no longer there"
    assert row[HEADS.index("still")] == "no"


def test_a_run_that_was_cut_short_and_resumed_has_the_same_picture(tmp_path: Path) -> None:
    whole = result(*LIARS)
    folder = RunFolder.create(tmp_path / "run", whole.experiment)
    for record in execute(folder, Sources.default()):
        if record.round == 2:
            break
    half = evidence(Result(folder))
    assert half is not None
    for _ in execute(folder, Sources.default()):
        pass
    found, expected = evidence(Result(RunFolder.open(folder.path))), evidence(whole)
    assert found == expected != half


def test_of_many_clients_and_rounds_the_most_suspicious_are_drawn() -> None:
    run = result(*LIARS)
    clients, liars, rounds = 10_000, MOST_NAMED + 4, 2 * MOST_POINTS + 1
    base = run.records[-1]

    def record(number: int) -> Record:
        told = [9.0 if n < liars else 1 + n / clients for n in range(clients)]
        told[50] = 3.0 if number == 7 else 0.0
        reasons = dict.fromkeys(range(liars if number else 2), f"{QUARANTINE}as it is")
        return replace(base, round=number, suspicion=tuple(told), refused=reasons)

    vars(run)["records"] = [record(number) for number in range(rounds)]
    found = evidence(run)
    assert found is not None
    panel, rows, count = found
    assert isinstance(panel.figure, Chart)
    coloured = [line for line in panel.figure.lines if not line.muted]
    muted: list[Any] = [line for line in panel.figure.lines if line.muted]
    assert (len(coloured), len(muted), count) == (MOST_NAMED, MOST_GREY + 1, liars)
    assert len(rows) == liars
    assert rows[0][:2] == ["0", str(rounds)]
    (band,) = [line for line in muted if line.low]
    assert max(band.high) < 2
    assert len(band.x) <= MOST_POINTS
    assert band.x[-1] == rounds
    # A peak of one round is among the points, each of which is the largest of several.
    assert any(max(line.y) == 3.0 for line in muted)
    assert "A point is the largest value of 3 rounds." in panel.note
