"""Making the runs of a comparison, which other processes may be making, too."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from umbel.checks import InUseError, UsageError, naming
from umbel.cli.advancing import (
    advance,
    advance_together,
    interruptible,
    nothing_left_of,
    resumable,
    writing_to,
)
from umbel.cli.job import Made
from umbel.cli.jobs import make_in_jobs
from umbel.cli.printing import say
from umbel.cli.screen import OwnScreen, Screen
from umbel.data.sources import Sources
from umbel.runs.config import plain, structured
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
    groups: Sequence[Sequence[Experiment]],
    runs_dir: Path,
    sources: Sources,
    quiet: bool,
    jobs: int = 1,
) -> list[RunFolder]:
    """The finished runs of experiments, grouped by all but the seed.

    A run that another process is making is left to it, and looked at again at the end.
    """
    make = partial(_make, jobs=jobs, screen=OwnScreen(LINES, quiet))
    busy = make([Seeds.of(group, runs_dir, sources) for group in groups])
    while busy:
        count = counted(sum(len(group.seeds) for group in busy), "run")
        first = RunFolder.of(runs_dir, busy[0].experiments()[0])
        say(f"waiting for {count} of another process: {first.path}", err=True)
        with resumable("the same command"), first.locked(patiently=True):
            pass
        busy = make(busy)
    # Another command may have made a run of this name, with other settings, in the meantime.
    return [RunFolder.begin(runs_dir, seeded) for group in groups for seeded in group]


@dataclass(frozen=True)
class Seeds:
    """Runs that differ in their seed: a unit of work for any process."""

    table: Mapping[str, Any]  # the experiment: what it names is imported where it is run
    seeds: tuple[int, ...]
    runs_dir: Path
    sources: Sources

    @classmethod
    def of(cls, group: Sequence[Experiment], runs_dir: Path, sources: Sources) -> Seeds:
        """The runs of these experiments."""
        seeds = tuple(seeded.seed for seeded in group)
        return cls(plain(group[0]), seeds, runs_dir, sources)

    @property
    def title(self) -> str:
        """What messages call it."""
        which = "seed" if len(self.seeds) == 1 else "seeds"
        return f"{self.table['name']} {which} {', '.join(map(str, self.seeds))}"

    def experiments(self) -> list[Experiment]:
        """What is run."""
        experiment: Experiment = structured(self.table, Experiment)
        return [experiment.with_seed(seed) for seed in self.seeds]

    @property
    def folders(self) -> list[RunFolder]:
        """Where they are made."""
        return [RunFolder.of(self.runs_dir, seeded) for seeded in self.experiments()]

    def make(self, screen: Screen) -> Made[Seeds]:
        """Make the runs together where that is faster, except those of other processes.

        Where it is not, each of several is a part.
        """
        folders: list[RunFolder] = []
        taken: list[int] = []
        for seeded in self.experiments():
            try:
                with writing_to(self.runs_dir.parent):
                    folder = RunFolder.begin(self.runs_dir, seeded)
                with folder.locked():
                    folders.append(folder)
            except InUseError:
                taken.append(seeded.seed)
        made = False
        with suppress(InUseError):  # one of them was taken just now: the others are made
            left = [folder for folder in folders if not folder.finished]
            with naming(self.title):
                made = advance_together(left, self.sources, screen)
        if not made and len(folders) > 1:
            parts = [replace(self, seeds=(folder.experiment.seed,)) for folder in folders]
            return Made(parts, self._busy(taken))
        for folder in () if made else folders:
            try:
                with naming(f"{self.table['name']} seed {folder.experiment.seed}"):
                    advance(folder, self.sources, screen)
            except InUseError:
                taken.append(folder.experiment.seed)
        return Made((), self._busy(taken))

    def _busy(self, taken: Sequence[int]) -> Sequence[Seeds]:
        return [replace(self, seeds=tuple(taken))] if taken else []


def _make(groups: Sequence[Seeds], screen: OwnScreen, jobs: int) -> list[Seeds]:
    """Make what is left of these, and return what other processes are making."""
    if jobs > 1:
        busy = _in_jobs(groups, screen, jobs)
    else:
        busy = [left for group in groups for left in _here(group, screen)]
    seeds: dict[str, list[int]] = {}  # those of a method together, as they were
    for left in busy:
        seeds.setdefault(left.table["name"], []).extend(left.seeds)
    first = {left.table["name"]: left for left in reversed(busy)}
    return [replace(first[name], seeds=tuple(sorted(taken))) for name, taken in seeds.items()]


def _here(group: Seeds, screen: OwnScreen) -> list[Seeds]:
    """Make it in this process."""
    with nothing_left_of(group.folders):
        made = group.make(screen)
        further = [busy for part in made.parts for busy in part.make(screen).busy]
    return [*made.busy, *further]


def _in_jobs(groups: Sequence[Seeds], screen: OwnScreen, jobs: int) -> list[Seeds]:
    """Make it in as many processes, if any of it is left."""
    left = [group for group in groups if not all(folder.finished for folder in group.folders)]
    for group in groups:
        if group not in left:
            _here(group, screen)  # which says that it is finished
    folders = [folder for group in left for folder in group.folders]
    runs = sum(not folder.finished for folder in folders)
    with interruptible("the same command"), nothing_left_of(folders):
        return make_in_jobs(left, runs, jobs, screen)
