"""How a run goes, while it goes: a live bar, or plain lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from time import perf_counter

import click
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from umbel.report import terminal
from umbel.runs.records import Record

RECENT = 20
"""Rounds by which the time left is told."""

FEWEST = 3
"""Rounds before a time left is told."""


@contextmanager
def progress(
    title: str, rounds: int, lines: int, to_stderr: bool = False
) -> Iterator[Callable[[Record], None]]:
    """What to call after every round: a live bar, or plain lines where nobody is watching."""
    console, ends = Console(stderr=to_stderr), list[float]()

    def left(record: Record) -> str:
        ends.append(perf_counter())
        return time_left(ends, rounds - record.round - 1)

    if not console.is_terminal:

        def say(record: Record) -> None:
            done, ahead = record.round + 1, left(record)
            if done % max(1, rounds // lines) == 0 or done == rounds:
                parts = (title, terminal.one_line(record, rounds), ahead)
                click.echo("  ".join(filter(None, parts)), err=to_stderr)

        yield say
        return
    columns = (
        TextColumn(title),
        BarColumn(bar_width=20),
        TextColumn("{task.fields[status]}"),
        TextColumn("{task.fields[ahead]}"),
    )
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=rounds, status="starting", ahead="")

        def draw(record: Record) -> None:
            status = terminal.one_line(record, rounds)
            bar.update(task, completed=record.round + 1, status=status, ahead=left(record))

        yield draw


def time_left(ends: Sequence[float], rounds: int) -> str:
    """How long so many rounds will take, by when the last ones ended; "" where too few did.

    What comes before the end of the first round is no part of it: starting up takes its time. Of
    the recent rounds the slowest and the fastest tenth are left out, so that one that was held up
    does not count for all, and the mean of the others holds those in which clients are evaluated.
    """
    recent = ends[-RECENT - 1 :]
    spans = sorted(after - before for before, after in pairwise(recent))
    if rounds < 1 or len(spans) < FEWEST:
        return ""
    cut = -(-len(spans) // 10)
    kept = spans[cut : len(spans) - cut]
    return f"{in_short(rounds * sum(kept) / len(kept))} left"


def in_short(seconds: float) -> str:
    """A time in the unit that suits it."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"
