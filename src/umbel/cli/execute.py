"""Do the remaining rounds of runs, and show their progress: a live bar, or plain lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import click

from umbel.checks import (
    ClusterLostError,
    DivergedError,
    InUseError,
    QuorumError,
    UsageError,
    WorkersDiedError,
    memory_errors,
)
from umbel.checks import command as to_paste
from umbel.cli import FAILED, refused
from umbel.cli.printing import how_far, say
from umbel.data.sources import Sources
from umbel.data.tables.described import described
from umbel.data.tables.encoding import Encoding
from umbel.export.openmetrics import exposed
from umbel.files.atomic import FULL
from umbel.folder.execution import execute_together, opened
from umbel.folder.run_folder import RunFolder
from umbel.report.terminal.progress import watched
from umbel.report.terminal.results import one_line
from umbel.run.lockstep import as_one
from umbel.run.records import Record

Report: TypeAlias = Callable[[Record], None]
"""To be called after every round."""


class Screen(Protocol):
    """This process's own terminal, or the way to that of another."""

    def progress(self, title: str, rounds: int | None) -> AbstractContextManager[Report]:
        """Show a run while it goes on."""

    def say(self, text: str) -> None:
        """Print a line."""


@dataclass(frozen=True)
class OwnScreen:
    """The streams of this process."""

    lines: int = 1000  # progress lines of a run where output is not a terminal
    to_stderr: bool = False  # whether standard output is reserved for other output

    @contextmanager
    def progress(self, title: str, rounds: int | None) -> Iterator[Report]:
        with watched(title, rounds, self.lines, self.to_stderr) as tell:
            yield lambda record: tell(record.round + 1, one_line(record, rounds))

    def say(self, text: str) -> None:
        say(text, err=self.to_stderr)


INTERRUPTED = 130


def advance(
    folder: RunFolder,
    sources: Sources,
    screen: Screen = OwnScreen(),
    workers: int | Literal["auto"] | None = None,
    command: str | None = None,
    describing: bool = False,
    metrics: tuple[str, int] | None = None,
) -> None:
    """Do the remaining rounds of a run, and show their progress.

    `command` is the command that messages give for going on, by default `umbel resume`. With
    `describing`, what each column of a table became is printed before the first round. `metrics` is
    where the run's numbers are served, a host and a port.
    """
    if folder.finished:
        screen.say(f"{folder.path}: finished already: {how_far(folder)}")
        return
    with resumable(command or to_paste("resume", folder.path), [folder]), folder.locked():
        run, plan = opened(folder, sources, workers)
        experiment = plan.experiment
        if describing and isinstance(run.federation.encoding, Encoding):
            for line in described(run.federation.encoding).splitlines():
                screen.say(line)
        title = titled(experiment.name, [experiment.seed])
        with (
            exposed(metrics, folder, run, plan, screen.say) as rounds,
            screen.progress(title, experiment.planned_rounds) as report,
        ):
            for record in rounds:
                report(record)


def advance_together(folders: Sequence[RunFolder], sources: Sources, screen: Screen) -> bool:
    """Do the rest of runs that differ in their seed side by side, if that is faster.

    Otherwise nothing is done: False.
    """
    if len(folders) < 2:
        return False
    experiment = folders[0].experiment
    title = titled(experiment.name, [folder.experiment.seed for folder in folders])
    with (
        resumable("the same command", folders),
        screen.progress(title, experiment.planned_rounds) as report,
    ):
        return execute_together(folders, sources, report)


@contextmanager
def resumable(command: str, folders: Sequence[RunFolder] = ()) -> Iterator[None]:
    """If an error ends the runs, add to its message how to go on."""
    try:
        with interruptible(command), memory_errors():
            yield
    except QuorumError as error:
        each = [_advised(one, command, folders) for one in error.runs or [error]]
        raise as_one(each) from None
    except MemoryError as error:
        on = f"; go on with: {command}" if any(folder.begun for folder in folders) else ""
        raise MemoryError(f"{error}{on}") from None
    except OSError as error:
        if error.errno not in FULL or not any(folder.begun for folder in folders):
            raise
        how = f"{error.strerror}; make room, and go on with: {command}"
        raise OSError(error.errno, how, error.filename) from None


def _advised(error: QuorumError, command: str, folders: Sequence[RunFolder]) -> QuorumError:
    """The error of a run, whose message says how to go on."""
    if isinstance(error, DivergedError):
        other = "run it again with another --set algorithm.local.lr=..."
        how = f"{other} and, if rounds were done, another name"
    elif isinstance(error, ClusterLostError):
        how = f"start Ray again if you had started it, and go on with: {command}"
    elif isinstance(error, WorkersDiedError):
        one = len(folders) == 1
        alone = to_paste("resume", folders[0].path, "--workers", 1) if one else command
        how = f"go on with: {alone}"
    else:
        how = "a run keeps its limits and faults; to change them choose another --runs-dir or name"
        # Simulated faults would be the same in a second attempt.
        if not any(folder.experiment.faults.any for folder in folders):
            how += f"; go on with: {command}"
    return type(error)(f"{error}; {how}")


def titled(name: str, seeds: Sequence[int]) -> str:
    """The name in messages for runs that differ in their seed."""
    return f"{name} {'seed' if len(seeds) == 1 else 'seeds'} {', '.join(map(str, seeds))}"


@contextmanager
def naming_refused(title: str) -> Iterator[None]:
    """Say which of several runs is refused."""
    try:
        yield
    except InUseError:
        raise
    except UsageError as error:
        raise UsageError(f"{title}: {error}") from None


def name_failed(failed: Sequence[str]) -> None:
    """Print one line for each run that can't go on, with the reason."""
    for why in failed:
        refused(f"umbel: {why}", FAILED)


def end_if(failed: Sequence[str]) -> None:
    """If runs can't go on, name them, and exit with status 1."""
    name_failed(failed)
    if failed:
        raise click.exceptions.Exit(FAILED)


@contextmanager
def interruptible(command: str) -> Iterator[None]:
    """Say how to go on where Ctrl-C ends the runs."""
    try:
        yield
    except KeyboardInterrupt:
        say(f"stopped; go on with: {command}", err=True)
        raise click.exceptions.Exit(INTERRUPTED) from None


@contextmanager
def nothing_left_of(folders: Sequence[RunFolder]) -> Iterator[None]:
    """Leave the disk as it was if runs are refused before their first round."""
    with no_empty_folders([folder.path for folder in folders]):
        try:
            with memory_errors():
                yield
        except InUseError:
            raise
        except (UsageError, OSError, MemoryError):
            for folder in folders:
                # it may not be a run's, or another process may use it by now
                with suppress(OSError, InUseError):
                    folder.discard_if_not_begun()
            raise


@contextmanager
def no_empty_folders(paths: Sequence[Path]) -> Iterator[None]:
    """Remove folders that were made for refused or stopped runs, if they are empty."""
    places = (place for path in paths for place in (path, *path.parents))
    new = {place for place in places if not place.exists()}
    try:
        yield
    except BaseException:
        for path in sorted(new, key=lambda path: len(path.parts), reverse=True):
            with suppress(OSError):  # not empty: others have written there
                path.rmdir()
        raise
