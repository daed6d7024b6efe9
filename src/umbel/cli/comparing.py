"""Making the runs of a comparison, which other processes may be making, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from umbel.checks import InUseError, UsageError
from umbel.cli.advancing import (
    advance,
    advance_together,
    nothing_left_of,
    resumable,
    writing_to,
)
from umbel.cli.printing import say
from umbel.data.sources import Sources
from umbel.runs.experiment import Experiment
from umbel.runs.folder import RunFolder
from umbel.runs.library import experiments_in
from umbel.runs.strangers import strangers_in
from umbel.runs.sweep import parts_of, sweep, values_of
from umbel.runs.tables import load_table, parse_setting
from umbel.summary import counted

LINES = 4
"""Progress lines for a run where output is not a terminal."""


def sweeps_in(source: Path, settings: Sequence[str]) -> list[Experiment]:
    """The experiments of a folder, one for each combination of the settings' values.

    Raises `UsageError` for a setting with several values that none of them has.
    """
    sweeps = [sweep(file, settings) for file in experiments_in(source)]
    nowhere = set.intersection(*(set(each.lacking) for each in sweeps))
    for path in sorted(nowhere):
        raise UsageError(f"--set {path}: unknown key: no experiment of {source.name} has it")
    for each in sweeps:
        for path in each.lacking:
            base = parts_of(each.experiments[0].name)[0]
            say(f"{base}: has no {path}, and runs without it", err=True)
    return [experiment for each in sweeps for experiment in each.experiments]


def strangers_named(source: Path, settings: Sequence[str]) -> Iterator[str]:
    """The code outside umbel that the experiments of a folder, or the settings over them, name."""
    for file in experiments_in(source):
        yield from strangers_in(load_table(file))
    for value in (value for setting in settings for value in values_of(setting)):
        yield from strangers_in(parse_setting(value))


def make_all(
    groups: Sequence[Sequence[Experiment]], runs_dir: Path, sources: Sources, quiet: bool
) -> list[RunFolder]:
    """The finished runs of experiments, grouped by all but the seed.

    A run that another process is making is left to it, and looked at again at the end.
    """
    busy = [left for group in groups if (left := _make(group, runs_dir, sources, quiet))]
    while busy:
        count = counted(sum(map(len, busy)), "run")
        first = RunFolder.of(runs_dir, busy[0][0])
        say(f"waiting for {count} of another process: {first.path}", err=True)
        with resumable("the same command"), first.locked(patiently=True):
            pass
        busy = [left for group in busy if (left := _make(group, runs_dir, sources, quiet))]
    # Another command may have made a run of this name, with other settings, in the meantime.
    return [RunFolder.begin(runs_dir, seeded) for group in groups for seeded in group]


def _make(
    group: Sequence[Experiment], runs_dir: Path, sources: Sources, quiet: bool
) -> list[Experiment]:
    """Make the runs of experiments that differ in their seed, except those of other processes."""
    with nothing_left_of([RunFolder.of(runs_dir, seeded) for seeded in group]):
        return _made(group, runs_dir, sources, quiet)


def _made(
    group: Sequence[Experiment], runs_dir: Path, sources: Sources, quiet: bool
) -> list[Experiment]:
    """Make them, and return those that other processes are making."""
    folders: list[RunFolder] = []
    busy: list[Experiment] = []
    for seeded in group:
        try:
            with writing_to(runs_dir.parent):
                folder = RunFolder.begin(runs_dir, seeded)
            with folder.locked():
                folders.append(folder)
        except InUseError:
            busy.append(seeded)
    left = [folder for folder in folders if not folder.finished]
    try:
        if advance_together(left, sources, LINES, quiet):
            return busy
    except InUseError:
        pass  # one of them was taken just now: the others are made one by one
    for folder in folders:
        try:
            advance(folder, sources, LINES, quiet)
        except InUseError:
            busy.append(folder.runnable)
    return busy
