"""How a run goes, while it goes: a live bar, or plain lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from umbel.report.terminal import one_line
from umbel.report.watching import watched
from umbel.runs.records import Record


@contextmanager
def progress(
    title: str, rounds: int, lines: int, to_stderr: bool = False
) -> Iterator[Callable[[Record], None]]:
    """What to call after every round."""
    with watched(title, rounds, lines, to_stderr) as tell:
        yield lambda record: tell(record.round + 1, one_line(record, rounds))
