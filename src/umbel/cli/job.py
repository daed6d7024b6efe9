"""A job: a process that makes runs for the one that started it, and tells it how they go."""

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

from umbel.checks import DivergedError, InUseError, QuorumError, UsageError, WorkersDiedError

if TYPE_CHECKING:  # a job watches its parent before it loads PyTorch
    from umbel.cli.screen import Report, Screen
    from umbel.runs.records import Record

KNOWN = (InUseError, UsageError, DivergedError, WorkersDiedError, QuorumError, MemoryError)
"""Errors that the command line says in one line, the special ones before the general."""


class Unit(Protocol):
    """What one process makes at one go. Its class can be imported, and its fields are plain."""

    @property
    def title(self) -> str:
        """What messages call it."""

    def make(self, screen: Screen) -> Made[Self]:
        """Make it, except what other processes are already making."""


U = TypeVar("U", bound=Unit)


@dataclass(frozen=True)
class Made(Generic[U]):
    """What is still to be made after a unit."""

    parts: Sequence[U] = ()  # nothing is gained by making them in one process
    busy: Sequence[U] = ()  # another command is making them
    failed: Sequence[str] = ()  # why runs of it can't go on, which stops no others

    def beside(self, other: Made[U]) -> Made[U]:
        """What is left of this and of another one."""
        return Made(
            [*self.parts, *other.parts],
            [*self.busy, *other.busy],
            [*self.failed, *other.failed],
        )


@contextmanager
def noting(failed: list[str]) -> Iterator[None]:
    """Where too few usable replies end a run, note why and raise nothing: other runs go on."""
    try:
        yield
    except WorkersDiedError:  # the fault is this machine's: the next run would meet it, too
        raise
    except QuorumError as error:
        failed.append(str(error))


@dataclass(frozen=True)
class Begun:
    """A run begins, or goes on."""

    title: str
    rounds: int


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
class Failed:
    """An error has ended the unit."""

    error: Exception


News: TypeAlias = Begun | Told | Ended | Said | logging.LogRecord | Made[Any] | Failed
"""What a job sends."""


class JobError(RuntimeError):
    """A defect that showed in a job, with the traceback from there."""


class Stopped(BaseException):
    """The parent has asked this process to end."""


@dataclass(frozen=True)
class Line:
    """The way to the parent: a `Screen`, and where a log goes."""

    pipe: Connection
    lock: Any = field(default_factory=threading.Lock)  # the seeds of a method are threads

    def send(self, news: News) -> None:
        with self.lock:
            try:
                self.pipe.send(news)
            except OSError:  # nobody is there any more
                os._exit(1)

    @contextmanager
    def progress(self, title: str, rounds: int) -> Iterator[Report]:
        from umbel.report.terminal import one_line

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
        """As a queue does, which is all that a `QueueHandler` needs of one."""
        self.send(record)


def work(pipe: Connection, threads: int, level: int) -> None:
    """Make unit after unit, each with `threads` threads, until the pipe is closed."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        signal.signal(signal.SIGTERM, _stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent says when to end
        _serve(Line(pipe), threads, level)
    except (Stopped, EOFError):
        pass


def _serve(line: Line, threads: int, level: int) -> None:
    import torch

    # Not more than alone, where OMP_NUM_THREADS may be set.
    torch.set_num_threads(min(threads, torch.get_num_threads()))
    logging.getLogger().addHandler(QueueHandler(cast("Any", line)))
    logging.getLogger("umbel").setLevel(level)
    while True:
        unit: Unit = line.pipe.recv()
        line.send(_made(unit, line))


def _made(unit: Unit, line: Line) -> Made[Any] | Failed:
    try:
        return unit.make(line)
    except Stopped:
        raise
    except BaseException as error:
        return Failed(sendable(error))


def sendable(error: BaseException) -> Exception:
    """An error that says the same in another process: those of libraries may not be sent."""
    if isinstance(error, OSError) and error.strerror is not None:
        return OSError(error.errno, error.strerror, error.filename)
    for kind in (*KNOWN, OSError):
        if isinstance(error, kind):
            return kind(str(error))
    return JobError("\n" + "".join(traceback.format_exception(error)))


def _stop(*_: object) -> None:
    raise Stopped


def _end_with_parent() -> None:
    """End when the parent ends; files on disk are always whole."""
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)
