"""A job: a process that makes runs for its parent process and reports their progress."""

from __future__ import annotations

import logging
import os
import signal
import threading
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from logging.handlers import QueueHandler
from multiprocessing import parent_process
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Generic, Protocol, Self, TypeAlias, TypeVar, cast

from umbel.checks import (
    DivergedError,
    InUseError,
    QuorumError,
    UsageError,
    WorkersDiedError,
    memory_errors,
)

if TYPE_CHECKING:  # a job watches its parent before it loads PyTorch
    from umbel.cli.execute import Report, Screen
    from umbel.run.records import Record

SENT_ERRORS = (InUseError, UsageError, DivergedError, WorkersDiedError, QuorumError, MemoryError)
"""Errors that the command line prints as one line, special ones before general ones."""


LONGEST_LOG_BYTES = 8000
"""Bytes of a log record's text that are sent; a longer one is sent without its middle."""


class Unit(Protocol):
    """A unit of work for one process. Its class can be imported, and its fields are plain."""

    @property
    def title(self) -> str:
        """Its name in messages."""

    def make(self, screen: Screen) -> JobMade[Self]:
        """Make it, except runs on which other processes already work."""


U = TypeVar("U", bound=Unit)


@dataclass(frozen=True)
class JobMade(Generic[U]):
    """The parts of a unit that are still to be made."""

    parts: Sequence[U] = ()  # runs that are not faster together in one process
    busy: Sequence[U] = ()  # runs on which another command works
    failed: Sequence[str] = ()  # why some of its runs can't go on; this stops no others

    def beside(self, other: JobMade[U]) -> JobMade[U]:
        """Combine the remaining parts of two units."""
        return JobMade(
            [*self.parts, *other.parts],
            [*self.busy, *other.busy],
            [*self.failed, *other.failed],
        )


@contextmanager
def noting(failed: list[str]) -> Iterator[None]:
    """If too few usable replies end a run, note the reason and continue with other runs."""
    try:
        yield
    except WorkersDiedError:  # a fault of this machine, which would affect the next run, too
        raise
    except QuorumError as error:
        failed += map(str, error.runs or [error])


@dataclass(frozen=True)
class Begun:
    """A run begins, or goes on."""

    title: str
    rounds: int | None


@dataclass(frozen=True)
class Told:
    """A round is done."""

    done: int
    text: str


@dataclass(frozen=True)
class Ended:
    """The run that was begun last is over, or has stopped."""


@dataclass(frozen=True)
class Said:
    """A line to be printed."""

    text: str


@dataclass(frozen=True)
class JobFailed:
    """An error has ended the unit."""

    error: Exception


News: TypeAlias = Begun | Told | Ended | Said | logging.LogRecord | JobMade[Any] | JobFailed
"""A message of a job."""


class JobError(RuntimeError):
    """An unexpected error in a job, with its traceback."""


class JobStopped(BaseException):
    """The parent has asked this process to end."""


@dataclass(frozen=True)
class JobLine:
    """Connection to the parent: a `Screen`, and the target of log records."""

    pipe: Connection
    # libraries may log from threads of their own
    lock: Any = field(default_factory=threading.Lock)

    def send(self, news: News) -> None:
        with self.lock:
            try:
                self.pipe.send(news)
            except OSError:  # the parent has ended
                os._exit(1)

    @contextmanager
    def progress(self, title: str, rounds: int | None) -> Iterator[Report]:
        from umbel.report.terminal.results import one_line

        def report(record: Record) -> None:
            self.send(Told(record.round + 1, one_line(record, rounds)))

        self.send(Begun(title, rounds))
        try:
            yield report
        finally:
            self.send(Ended())

    def say(self, text: str) -> None:
        self.send(Said(text))

    def put_nowait(self, record: logging.LogRecord) -> None:
        """The one method of a queue that a `QueueHandler` needs.

        Processes that were forked from this one have another `lock` and the same pipe. Up to 16 KB
        are written in one piece, which nobody else's can come between.
        """
        where, text = (record.pathname, record.lineno), shortened(record.getMessage())
        plain = logging.LogRecord(record.name, record.levelno, *where, text, None, None)
        self.send(plain)


def shortened(text: str) -> str:
    """A text of at most about `LONGEST_LOG_BYTES` bytes, without its middle if it is longer."""
    data, half = text.encode(errors="replace"), LONGEST_LOG_BYTES // 2
    if len(data) <= LONGEST_LOG_BYTES:
        return data.decode()
    return (data[:half] + b"\n...\n" + data[-half:]).decode(errors="ignore")


def work(pipe: Connection, threads: int, level: int) -> None:
    """Make unit after unit, each with `threads` threads, until the pipe is closed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        signal.signal(signal.SIGTERM, _stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to end
        _serve(JobLine(pipe), threads, level)
    except (JobStopped, EOFError):
        pass


def _serve(line: JobLine, threads: int, level: int) -> None:
    import torch

    # OMP_NUM_THREADS may already limit the number of threads further.
    torch.set_num_threads(min(threads, torch.get_num_threads()))
    logging.getLogger().addHandler(QueueHandler(cast("Any", line)))
    logging.getLogger("umbel").setLevel(level)
    while True:
        unit: Unit = line.pipe.recv()
        line.send(_made(unit, line))


def _made(unit: Unit, line: JobLine) -> JobMade[Any] | JobFailed:
    try:
        with memory_errors():
            return unit.make(line)
    except JobStopped:
        raise
    except BaseException as error:
        return JobFailed(sendable(error))


def sendable(error: BaseException) -> Exception:
    """An error with the same message that can be sent to another process."""
    if isinstance(error, OSError) and error.strerror is not None:
        return OSError(error.errno, error.strerror, error.filename)
    for kind in (*SENT_ERRORS, OSError):
        if isinstance(error, kind):
            return kind(str(error))
    return JobError("\n" + "".join(traceback.format_exception(error)))


def _stop(*_: object) -> None:
    raise JobStopped


def _end_with_parent() -> None:
    """End when the parent ends; files on disk are always whole."""
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
