"""A live line for the rounds of a run: on a terminal, in a notebook, or as plain lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from html import escape
from importlib import import_module
from itertools import pairwise
from operator import length_hint
from time import perf_counter
from typing import Any, TypeAlias, TypeVar

from umbel.checks import printable
from umbel.run.records import Record

LINES = 10
"""Progress lines of a run when output is not a terminal; without a known length, rounds a line."""

OFTEN = 0.1
"""Seconds between two changes of a line: each is a message to the browser, or drawn at once."""

T = TypeVar("T")

Tell: TypeAlias = "Callable[[int, str], None]"
"""Called with the number of finished rounds, and a text about the last one."""

Begin: TypeAlias = "Callable[[str, int | None], AbstractContextManager[Tell]]"
"""Called with a run's title and number of rounds: shows its line during the run."""


def progress(rounds: Iterable[T], total: int | None = None, title: str = "") -> Iterator[T]:
    """Show rounds as they are done: `for state, record in umbel.progress(run.rounds(60))`.

    It yields the same rounds. On a terminal and in a notebook it shows a bar with the time left,
    elsewhere a few plain lines; all but the notebook's goes to stderr. `rounds` may yield records,
    alone or in tuples. `total` is their number, needed if the iterable has no length, as a
    generator.
    """
    total = total or length_hint(rounds) or None
    with watched(title, total) as tell:
        for done, item in enumerate(rounds, start=1):
            tell(done, _said(item, done, total))
            yield item


def watched(
    title: str, total: int | None, lines: int = LINES, to_stderr: bool = True
) -> AbstractContextManager[Tell]:
    """Show the progress of rounds, in the way that suits the output of this process."""
    from rich.console import Console

    console = Console(stderr=to_stderr)
    if console.is_jupyter:
        return _in_notebook(title, total)
    if console.is_terminal:
        return _on_terminal(console, title, total)
    return _in_lines(console, title, total, lines)


@contextmanager
def watched_together(lines: int, to_stderr: bool) -> Iterator[Begin]:
    """As `watched`, for runs at the same time, with one line for each."""
    from rich.console import Console

    console = Console(stderr=to_stderr)
    if console.is_terminal and not console.is_jupyter:
        with _bars(console) as bars:
            yield lambda title, rounds: _one_of(bars, title, rounds)
    else:
        yield lambda title, rounds: _in_lines(console, title, rounds, lines)


def _said(item: object, done: int, total: int | None) -> str:
    from umbel.report.terminal.results import one_line

    parts = item if isinstance(item, tuple) else (item,)
    record = next((part for part in parts if isinstance(part, Record)), None)
    if record is None:
        return f"{done}/{total}" if total else str(done)
    # A resumed run does not start at round 0.
    return one_line(record, None if total is None else record.round + 1 + total - done)


@contextmanager
def _on_terminal(console: Any, title: str, total: int | None) -> Iterator[Tell]:
    with _bars(console, bool(title)) as bars:
        _, tell = _line(bars, title, total)
        yield tell


@contextmanager
def _one_of(bars: Any, title: str, total: int | None) -> Iterator[Tell]:
    """Move the line of a finished run above those of unfinished runs."""
    number, tell = _line(bars, title, total)
    try:
        yield tell
    finally:
        last = [task for task in bars.tasks if task.id == number and task.completed]
        bars.remove_task(number)
        bars.refresh()  # what is printed comes above what is shown by then
        if last:
            bars.console.print(bars.make_tasks_table(last))


def _line(bars: Any, title: str, total: int | None) -> tuple[int, Tell]:
    """The number of a new line, and how its rounds are told."""
    number = bars.add_task(printable(title), total=total, status="starting", ahead="")
    shown, ahead = -OFTEN, _clock(total)

    def tell(done: int, text: str) -> None:
        nonlocal shown
        due = perf_counter() - shown >= OFTEN
        bars.update(number, completed=done, status=text, ahead=ahead(done), refresh=due)
        shown = perf_counter() if due else shown

    return number, tell


def _bars(console: Any, named: bool = True) -> Any:
    """Progress lines that are redrawn only when there is news.

    A thread that draws them would hold the console's lock now and then, and a worker forked at that
    moment could never print.
    """
    from rich.progress import BarColumn, Progress, TextColumn

    titles = [TextColumn("{task.description}", markup=False)] if named else []
    status = TextColumn("{task.fields[status]}", markup=False)
    ahead = TextColumn("{task.fields[ahead]}")
    columns = (*titles, BarColumn(bar_width=20), status, ahead)
    return Progress(*columns, console=console, auto_refresh=False)


@contextmanager
def _in_lines(console: Any, title: str, total: int | None, lines: int) -> Iterator[Tell]:
    every = max(1, total // lines) if total else LINES
    ahead = _clock(total)

    def tell(done: int, text: str) -> None:
        parts = (title, text, ahead(done))
        if done % every == 0 or done == total:
            line = "  ".join(filter(None, parts))
            console.print(
                printable(line), markup=False, emoji=False, highlight=False, soft_wrap=True
            )

    yield tell


@contextmanager
def _in_notebook(title: str, total: int | None) -> Iterator[Tell]:
    """Progress without widgets, which need an extension; the last text stays in the file."""
    show: Any = import_module("IPython.display")
    handle = show.display(show.HTML(_bar(title, 0, total, "starting")), display_id=True)
    began = shown = perf_counter()
    last, ahead = (0, "starting"), _clock(total)

    def tell(done: int, text: str) -> None:
        nonlocal shown, last
        last, left = (done, text), ahead(done)
        if perf_counter() - shown >= OFTEN:
            shown = perf_counter()
            handle.update(show.HTML(_bar(title, done, total, f"{text}  {left}")))

    try:
        yield tell
    finally:
        done, text = last
        handle.update(
            show.HTML(_bar(title, done, total, f"{text}  {perf_counter() - began:.1f} s"))
        )


def _bar(title: str, done: int, total: int | None, text: str) -> str:
    where = f'value="{done}" max="{total}"' if total else ""
    bar = f'<progress {where} style="width:12em;vertical-align:middle"></progress>'
    name = f"{escape(title)} " if title else ""
    return f'<div style="font-variant-numeric:tabular-nums">{name}{bar} {escape(text)}</div>'


def _clock(total: int | None) -> Callable[[int], str]:
    """A function from the number of finished rounds to the estimated time of the others."""
    ends: list[float] = []

    def ahead(done: int) -> str:
        ends.append(perf_counter())
        return "" if total is None else time_left(ends, total - done)

    return ahead


RECENT = 20
"""Number of latest rounds used for the estimate."""

FEWEST_ROUNDS = 3
"""Number of finished rounds before the first estimate."""


def time_left(ends: Sequence[float], rounds: int) -> str:
    """Estimate how long the remaining rounds take; "" if too few have ended to tell.

    Time before the end of the first round is ignored, as it includes starting up. The estimate is
    the mean of recent rounds without the slowest and the fastest tenth, so that a single delayed
    round does not distort it; rounds with an evaluation are included.
    """
    recent = ends[-RECENT - 1 :]
    spans = sorted(after - before for before, after in pairwise(recent))
    if rounds < 1 or len(spans) < FEWEST_ROUNDS:
        return ""
    cut = -(-len(spans) // 10)
    kept = spans[cut : len(spans) - cut]
    return f"{in_units(rounds * sum(kept) / len(kept))} left"


def in_units(seconds: float) -> str:
    """A time in a suitable unit."""
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 100 * 60 else f"{seconds / 3600:.1f} h"
