"""Units of work made side by side, each in a process of its own: `--jobs`."""

from __future__ import annotations

import logging
import signal
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import wait
from typing import Generic

import click

from umbel.cli.execute import OwnScreen
from umbel.cli.jobs.job import Begun, Ended, JobFailed, JobMade, News, Said, Told, U, Unit, work
from umbel.cli.jobs.server import CONTEXT, start
from umbel.cli.printing import say
from umbel.cores import cores, forget
from umbel.report.terminal.progress import Begin, Tell, watched_together

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that end a process; not every system has both."""


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Inside, a signal that ends this process ends it by `SystemExit`, after what is to be closed.

    `multiprocessing` would otherwise leave files. Signals that are ignored, as by nohup, or handled
    by somebody else, stay so.
    """
    main = threading.current_thread() is threading.main_thread()
    heeded = [number for number in ENDING if main and signal.getsignal(number) == signal.SIG_DFL]

    def end(number: int, _: object) -> None:
        for each in heeded:  # a second one would interrupt the ending of jobs
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in heeded:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in heeded:
            signal.signal(number, signal.SIG_DFL)


AGAIN = 3
"""Number of times that a unit is made again if its process was killed."""

GRACE = 10.0
"""Seconds that a job has to end when it is told to; after that it is killed."""


@dataclass(frozen=True)
class Attempt(Generic[U]):
    """A unit that waits, or is being made."""

    unit: U
    kills: int = 0


class Job:
    """A process that makes one unit at a time, as its parent sees it."""

    def __init__(self, threads: int) -> None:
        self.pipe, theirs = CONTEXT.Pipe()
        level = logging.getLogger("umbel").getEffectiveLevel()
        self.process = CONTEXT.Process(target=work, args=(theirs, threads, level))
        try:
            start(self.process)
        except (EOFError, ConnectionError) as error:
            kind = type(error).__name__
            why = f"the process that starts all jobs ended while it was loading ({kind})"
            how = "--jobs 1 works without it, and fewer --jobs leave more memory for each"
            raise click.ClickException(f"{why}; {how}; go on with: the same command") from None
        theirs.close()  # so that the pipe ends when the job does

    def give(self, unit: Unit) -> None:
        with suppress(BrokenPipeError):  # it was killed while it was idle, which closed its pipe
            self.pipe.send(unit)

    def news(self) -> News | None:
        """Return the next message; None if the job has ended and holds no more locks."""
        try:
            news: News = self.pipe.recv()
        except (EOFError, OSError):
            self.wait()
            return None
        return news

    def wait(self) -> None:
        """Return once it has ended, and leave nothing of it behind."""
        self.process.join()
        forget(self.process.pid or 0)

    @property
    def end(self) -> str:
        """Describe the end of the job's process, for messages."""
        code = self.process.exitcode or 0
        with suppress(ValueError):
            return f"was killed ({signal.Signals(-code).name})"
        return f"ended with status {code}"


def make_in_jobs(units: Sequence[U], runs: int, count: int, screen: OwnScreen) -> JobMade[U]:
    """Make units, which hold `runs` runs, in up to `count` jobs; return what is left of them.

    Runs that can't go on stop no others. Raises any other error of a unit, the first that there is;
    then, on Ctrl-C, and on what else ends this process, the others are stopped, and can go on.
    """
    if not runs:  # starting a process would take seconds
        return JobMade()
    count = min(count, runs)
    threads = max(1, cores() // count)
    with ending_in_order(), watched_together(screen.lines, screen.to_stderr) as begin:
        desk = Desk(units, threads, begin, screen)
        try:
            for _ in range(count):
                desk.idle.append(Job(threads))
            return desk.run()
        finally:
            desk.close()


class Desk(Generic[U]):
    """The waiting units, the unit of each job, and the lines that show them."""

    def __init__(self, units: Sequence[U], threads: int, begin: Begin, screen: OwnScreen) -> None:
        self.waiting = deque(Attempt(unit) for unit in units)
        self.threads, self.begin, self.screen = threads, begin, screen
        self.idle: list[Job] = []
        self.making: dict[Job, Attempt[U]] = {}
        self.shown: dict[Job, tuple[ExitStack, Tell]] = {}
        self.left: JobMade[U] = JobMade()

    def run(self) -> JobMade[U]:
        """Make all there is."""
        while self.waiting or self.making:
            while self.waiting and self.idle:
                job, attempt = self.idle.pop(), self.waiting.popleft()
                self.making[job] = attempt
                job.give(attempt.unit)
            for pipe in wait([job.pipe for job in self.making]):
                job = next(job for job in self.making if job.pipe is pipe)
                self._hear(job, job.news())
        return self.left

    def _hear(self, job: Job, news: News | None) -> None:
        match news:
            case Begun(title, rounds):
                self._end_line(job)
                stack = ExitStack()
                self.shown[job] = stack, stack.enter_context(self.begin(title, rounds))
            case Told(done, text):
                self.shown[job][1](done, text)
            case Ended():
                self._end_line(job)
            case Said(text):
                self.screen.say(text)
            case logging.LogRecord():
                logging.getLogger(news.name).handle(news)
            case JobFailed(error):
                raise error
            case JobMade(parts):
                del self.making[job]
                self.idle.append(job)
                self.waiting.extendleft(Attempt(part) for part in reversed(parts))
                self.left = self.left.beside(replace(news, parts=()))
            case None:
                self._lost(job)

    def _end_line(self, job: Job) -> None:
        if job in self.shown:
            self.shown.pop(job)[0].close()

    def _lost(self, job: Job) -> None:
        """Give the unit of a job that was killed to another job."""
        attempt = self.making.pop(job)
        self._end_line(job)
        kills, title = attempt.kills + 1, attempt.unit.title
        if kills > AGAIN:
            why = f"the process that worked on it {job.end}; this has happened {kills} times"
            how = "fewer --jobs leave more memory for each; go on with: the same command"
            raise click.ClickException(f"{title}: {why}; {how}")
        say(f"{title}: the process that worked on it {job.end}; another continues it", err=True)
        self.waiting.appendleft(replace(attempt, kills=kills))
        self.idle.append(Job(self.threads))

    def close(self) -> None:
        """End all jobs, and wait for them."""
        jobs = [*self.idle, *self.making]
        for job in jobs:
            job.process.terminate()
        for job in list(self.shown):
            self._end_line(job)
        for job in jobs:
            job.process.join(GRACE)
            if job.process.is_alive():
                job.process.kill()
            job.wait()
            job.pipe.close()
