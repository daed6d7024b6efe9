"""How a run is shown while it goes on, where somebody watches and where nobody does."""

from __future__ import annotations

from collections.abc import Iterator
from operator import length_hint
from typing import Any

import pytest

import umbel
from tests.federations import blobs, mlp
from umbel.run.records import Record
from umbel.run.rounds import Counted


def run() -> umbel.Run:
    return umbel.Run(umbel.FedAvg(), blobs(), mlp())


def records(count: int, first: int = 0) -> Iterator[Record]:
    for number in range(first, first + count):
        yield Record(number, accuracy=0.5)


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """What went to stderr, in lines of 200 characters."""
    monkeypatch.setenv("COLUMNS", "200")
    return lambda: capsys.readouterr().err


def test_rounds_know_how_many_are_left_and_are_the_same_when_watched(shown: Any) -> None:
    rounds = run().rounds(5)
    assert length_hint(rounds) == 5
    state, _ = next(rounds)
    assert length_hint(rounds) == 4
    rest = [record.untimed() for _, record in run().rounds(5, state, first=1)]
    watched = [record.untimed() for _, record in umbel.progress(rounds)]
    assert watched == rest
    assert shown().splitlines()[-1].startswith("round 5/5  accuracy 0.")
    assert list(Counted(iter("abc"), 1)) == ["a", "b", "c"]


def test_where_nobody_watches_there_are_a_few_plain_lines(shown: Any) -> None:
    for _ in umbel.progress(records(40), 40, title="[b]mine[/b]"):
        pass
    lines = shown().splitlines()
    assert len(lines) == 10
    assert lines[0].startswith("[b]mine[/b]  round 4/40  accuracy 0.500  ")
    assert lines[-2].endswith("0 s left")
    assert lines[-1] == "[b]mine[/b]  round 40/40  accuracy 0.500"


def test_a_run_that_goes_on_counts_the_rounds_that_were_done_before(shown: Any) -> None:
    for _ in umbel.progress(records(2, first=8), 2):
        pass
    assert [line[:11] for line in shown().splitlines()] == ["round 9/10 ", "round 10/10"]


def test_a_terminal_has_a_bar_that_ends_with_the_loop(
    shown: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("FORCE_COLOR", "1")
    for _, record in umbel.progress(run().rounds(9), title="[i]mine"):
        last = record
        if record.round == 2:
            break
    text = shown()
    assert "[i]mine" in text
    assert f"round 3/9  accuracy {last.accuracy:.3f}" in text
    assert text.endswith("\x1b[?25h")  # the cursor is back
