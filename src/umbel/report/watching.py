"""A live line for the rounds of a run: on a terminal, in a notebook, or as plain lines."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from html import escape
from importlib import import_module
from operator import length_hint
from time import perf_counter
from typing import Any, TypeAlias, TypeVar

from umbel.runs.records import Record

LINES = 10
"""Lines in all, where nobody is watching; of unknown length, a line every so many rounds."""

OFTEN = 0.1
"""Seconds between two changes of a notebook's line: each is a message to the browser."""

T = TypeVar("T")

Tell: TypeAlias = "Callable[[int, str], None]"
"""Takes how many rounds are done, and what is to be said of the last of them."""


def progress(rounds: Iterable[T], total: int | None = None, title: str = "") -> Iterator[T]:
    """The same rounds, shown as they are done: `for state, record in progress(run.rounds(60))`.

    A bar with the time left on a terminal and in a notebook, a few plain lines elsewhere; on a
    terminal and elsewhere it goes to stderr. Takes whatever yields records, alone or in tuples.
    `total` is how many are to come, for what can't say so itself, such as a generator of your own.
    """
    from rich.console import Console

    total = total or length_hint(rounds) or None
    console = Console(stderr=True)
    if console.is_jupyter:
        shown = _in_notebook(title, total)
    elif console.is_terminal:
        shown = _on_terminal(console, title, total)
    else:
        shown = _in_lines(console, title, total)
    with shown as tell:
        for done, item in enumerate(rounds, start=1):
            tell(done, _said(item, done, total))
            yield item


def _said(item: object, done: int, total: int | None) -> str:
    from umbel.report.terminal import one_line

    parts = item if isinstance(item, tuple) else (item,)
    record = next((part for part in parts if isinstance(part, Record)), None)
    if record is None:
        return f"{done}/{total}" if total else str(done)
    # A run that goes on does not begin at round 0.
    return one_line(record, None if total is None else record.round + 1 + total - done)


@contextmanager
def _on_terminal(console: Any, title: str, total: int | None) -> Iterator[Tell]:
    from rich.markup import escape as plain
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    status = TextColumn("{task.fields[status]}", markup=False)
    columns = [BarColumn(bar_width=20), status, TimeRemainingColumn()]
    named = [TextColumn(plain(title))] if title else []
    with Progress(*named, *columns, console=console) as bar:
        task = bar.add_task("", total=total, status="starting")
        yield lambda done, text: bar.update(task, completed=done, status=text)


@contextmanager
def _in_lines(console: Any, title: str, total: int | None) -> Iterator[Tell]:
    every = max(1, total // LINES) if total else LINES
    began = perf_counter()

    def tell(done: int, text: str) -> None:
        if done % every == 0 or done == total:
            parts = [title, text, _left(began, done, total)]
            line = "  ".join(part for part in parts if part)
            console.print(line, markup=False, highlight=False, soft_wrap=True)

    yield tell


@contextmanager
def _in_notebook(title: str, total: int | None) -> Iterator[Tell]:
    """Without widgets, which need an extension; what was shown last stays in the saved file."""
    show: Any = import_module("IPython.display")
    handle = show.display(show.HTML(_bar(title, 0, total, "starting")), display_id=True)
    began = shown = perf_counter()
    last = (0, "starting")

    def tell(done: int, text: str) -> None:
        nonlocal shown, last
        last = done, text
        if perf_counter() - shown >= OFTEN:
            shown = perf_counter()
            said = f"{text}  {_left(began, done, total)}"
            handle.update(show.HTML(_bar(title, done, total, said)))

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


def _left(began: float, done: int, total: int | None) -> str:
    if total is None:
        return ""
    return f"{(perf_counter() - began) / done * (total - done):.0f} s left"
