"""Running an experiment in a folder, so that it can be killed at any moment and go on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from time import perf_counter

from umbel.checks import UsageError
from umbel.data.sources import Sources
from umbel.experiment import Run
from umbel.flow import Engine
from umbel.folder import RunFolder, now
from umbel.lockstep import pays, seats
from umbel.records import Record
from umbel.result import Result
from umbel.scores import ClientScores


def execute(folder: RunFolder, sources: Sources) -> Iterator[Record]:
    """Do the rounds that are left, yielding the record of each; nothing if the run is finished.

    The checkpoint of a round is on disk before its record is yielded, where one is due.
    """
    with folder.locked():
        if not folder.finished:
            yield from _session(folder, folder.experiment.open(sources))


def advance(folder: RunFolder, run: Run) -> Iterator[Record]:
    """As `execute`, with a run that was opened otherwise: its clients may be anywhere."""
    with folder.locked():
        if not folder.finished:
            yield from _session(folder, run)


def execute_together(
    folders: Sequence[RunFolder], sources: Sources, report: Callable[[Record], None]
) -> bool:
    """Do what is left of several runs side by side, if that is faster; else nothing, and False.

    `report` is called with the record of each round of the last of them. The seconds in their
    records are each one's share.
    """
    with ExitStack() as locks:
        for folder in folders:
            locks.enter_context(folder.locked())
        left = [folder for folder in folders if not folder.finished]
        if len(left) < 2 or not pays(left[0].experiment.open(sources)):
            return False
        runs = [folder.experiment.open(sources) for folder in left]
        table = seats(runs)
        if table is None:
            return False

        def go_on(folder: RunFolder, run: Run, engine: Engine) -> None:
            for record in _session(folder, replace(run, engine=engine), len(left)):
                if folder is left[-1]:
                    report(record)

        table.drive([partial(go_on, *each) for each in zip(left, runs, strict=True)])
    return True


def _session(folder: RunFolder, run: Run, sharing: int = 1) -> Iterator[Record]:
    """The rounds that are left, in a process that so many runs share."""
    began, clock = now(), perf_counter()
    try:
        yield from _rounds(folder, run, sharing)
    finally:
        folder.note_session(began, (perf_counter() - clock) / sharing)


def _rounds(folder: RunFolder, run: Run, sharing: int) -> Iterator[Record]:
    experiment = folder.experiment
    start = run.start(experiment.rounds)
    restored, first = folder.restore(start)
    state = start if restored is None else restored
    scores: ClientScores | None = None
    for after, whole, found in run.scored_rounds(experiment.rounds, state, first):
        before, state, scores, record = state, after, found, whole.sharing_time(sharing)
        folder.append(record)
        done = record.round + 1
        is_last = done == experiment.rounds
        folder.evidence.note(run.algorithm, before, state, record.round, is_last)
        if done % experiment.checkpoint_every == 0 or is_last:
            folder.save(state, done)
        yield record
    last = run.context(experiment.rounds - 1, experiment.rounds)
    folder.finish(run, scores or run.scores(state, last))


def load(path: Path | str) -> Result:
    """A finished run: `load("runs/...").model(cluster=0)` is a module ready to use.

    Raises `UsageError` if the run is not there or not finished.
    """
    folder = RunFolder.open(path)
    if not folder.finished:
        raise UsageError(f"{path}: not finished; go on with it by `umbel resume {path}`")
    return Result(folder)
