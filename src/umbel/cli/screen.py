"""Where the progress of runs is shown: a live bar, or plain lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from umbel.cli.printing import say
from umbel.report.terminal.progress import watched
from umbel.report.terminal.results import one_line
from umbel.run.records import Record

Report: TypeAlias = Callable[[Record], None]
"""To be called after every round."""


class Screen(Protocol):
    """This process's own terminal, or the way to that of another."""

    def progress(self, title: str, rounds: int) -> AbstractContextManager[Report]:
        """Show a run while it goes on."""

    def say(self, text: str) -> None:
        """Print a line."""


@dataclass(frozen=True)
class OwnScreen:
    """The streams of this process."""

    lines: int = 1000  # progress lines of a run where output is not a terminal
    to_stderr: bool = False  # whether standard output is reserved for other output

    @contextmanager
    def progress(self, title: str, rounds: int) -> Iterator[Report]:
        with watched(title, rounds, self.lines, self.to_stderr) as tell:
            yield lambda record: tell(record.round + 1, one_line(record, rounds))

    def say(self, text: str) -> None:
        say(text, err=self.to_stderr)
