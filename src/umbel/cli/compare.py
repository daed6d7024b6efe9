"""Make the runs of a comparison, on which other processes may be working, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from umbel.checks import InUseError, UsageError, check, naming
from umbel.cli.execute import (
    OwnScreen,
    Screen,
    advance,
    advance_together,
    interruptible,
    naming_refused,
    nothing_left_of,
    resumable,
    titled,
)
from umbel.cli.jobs.job import JobMade, noting
from umbel.cli.jobs.pool import make_in_jobs
from umbel.cli.printing import say
from umbel.data.sources import Sources
from umbel.experiment.differences import WORKERS, check_same, settings_of
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.layers import load_table, parse_setting, path_of, strangers_in
from umbel.experiment.library import experiments_in
from umbel.experiment.setting_paths import path_of_setting
from umbel.experiment.sweep import OF_CONTROL, Sweep, parts_of, sweep, values_of
from umbel.experiment.toml_file import plain, structured
from umbel.files.atomic import writing_to
from umbel.folder.run_folder import RunFolder, runs_in
from umbel.run.start import UNTIL_STOPPED, unsaid
from umbel.summary import counted
from umbel.version import ONE_RELEASE, differing

LINES = 4
"""Progress lines for a run where output is not a terminal."""


def sweeps_in(source: Path, settings: Sequence[str]) -> list[ExperimentSettings]:
    """The experiments of a folder, one for each combination of the settings' values.

    Raises `UsageError` for a setting that no experiment has, and for two files of one name.
    """
    for setting in settings:
        other = path_of(setting) != "seed"
        check(other, "--set", setting, "allowed: choose seeds by --seeds and --first-seed")
    files = experiments_in(source)
    sweeps = [sweep(file, settings) for file in files]
    nowhere = set.intersection(*(set(each.lacking) for each in sweeps))
    for path in sorted(nowhere):
        meant = path_of_setting(path)
        hint = f"; did you mean {meant}?" if meant else ""
        raise UsageError(f"--set {path}: unknown key: no experiment of {source.name} has it{hint}")
    _check_names(files, sweeps)
    for each in sweeps:
        for path in each.lacking:
            base = parts_of(each.experiments[0].name)[0]
            say(f"{base}: has no {path}, and runs without it", err=True)
    return [experiment for each in sweeps for experiment in each.experiments]


def _check_names(files: Sequence[Path], sweeps: Sequence[Sweep]) -> None:
    """Raise `UsageError` if experiments of two files have one name, and so one folder and row."""
    named: dict[str, Path] = {}
    for file, each in zip(files, sweeps, strict=True):
        for experiment in each.experiments:
            first = named.setdefault(experiment.name, file)
            both = f"{first.name} and {file.name} have it"
            expected = f"unique: {both}; give each experiment a name of its own"
            check(first is file, "name", experiment.name, expected)


def strangers_named(source: Path, settings: Sequence[str]) -> Iterator[str]:
    """The code outside umbel that experiments of a folder, or settings given for them, name."""
    for file in experiments_in(source):
        yield from strangers_in(load_table(file))
    for value in (value for setting in settings for value in values_of(setting)):
        yield from strangers_in(parse_setting(value))


def check_start(
    groups: Sequence[Sequence[ExperimentSettings]], runs_dir: Path, sources: Sources
) -> None:
    """Start each new experiment under its first seed, so that errors show before any training.

    Raises `UsageError` that names the experiment that can't start, or a folder of another one.
    """
    for first in (group[0] for group in groups):
        expected = "a number: only runs that end are compared"
        check(first.rounds != UNTIL_STOPPED, f"{first.name}: rounds", first.rounds, expected)
    unlike: Counter[str] = Counter()
    for seeded in (seeded for group in groups for seeded in group):
        folder = RunFolder.of(runs_dir, seeded)
        if folder.begun:
            check_same(folder.path, folder.experiment, seeded)
            for session in folder.sessions.read()[-1:]:
                unlike[differing(session.get("versions", {}))] += 1
    for which, count in unlike.items():
        if which:
            say(f"{counted(count, 'run')} in {runs_dir} with {which}: {ONE_RELEASE}", err=True)
    firsts = [group[0] for group in groups]
    new = [first for first in firsts if not RunFolder.of(runs_dir, first).begun]
    new.sort(key=lambda first: first.seed)  # as each seed has a federation of its own
    built, federation = None, None
    for first in new if len(groups) > 1 else ():
        with interruptible("the same command"), unsaid(), naming_refused(_titled(first)):
            if federation is None or (first.scenario, first.seed) != built:
                built, federation = (first.scenario, first.seed), first.federation(sources)
            first.opened(federation).start(first.rounds)


def _titled(experiment: ExperimentSettings) -> str:
    return titled(experiment.name, [experiment.seed])


def make_all(
    groups: Sequence[Sequence[ExperimentSettings]],
    runs_dir: Path,
    sources: Sources,
    quiet: bool,
    jobs: int = 1,
) -> tuple[list[RunFolder], list[str]]:
    """The runs of experiments, grouped by all but the seed; and why some can't go on.

    Raises `UsageError` before any training if an experiment can't start.
    """
    groups = _once(groups, runs_dir)
    check_start(groups, runs_dir, sources)
    failed = make_runs(groups, runs_dir, sources, OwnScreen(LINES, quiet), jobs)
    # Another command may have made a run of this name with other settings in the meantime.
    return [RunFolder.begin(runs_dir, seeded) for group in groups for seeded in group], failed


def make_runs(
    groups: Sequence[Sequence[ExperimentSettings]],
    runs_dir: Path,
    sources: Sources,
    screen: OwnScreen,
    jobs: int,
) -> list[str]:
    """Make the runs of experiments, grouped by all but the seed; return why some can't go on.

    A run on which another process works is left to it, and checked again at the end.
    """
    make = partial(_make, jobs=jobs, screen=screen)
    busy, failed = make([Seeds.of(group, runs_dir, sources) for group in groups])
    while busy:
        count = counted(sum(len(group.seeds) for group in busy), "run")
        first = RunFolder.of(runs_dir, busy[0].experiments()[0])
        say(f"waiting for {count} of another process: {first.path}", err=True)
        with resumable("the same command"), first.locked(patiently=True):
            pass
        busy, further = make(busy)
        failed += further
    return failed


def _once(
    groups: Sequence[Sequence[ExperimentSettings]], runs_dir: Path
) -> Sequence[Sequence[ExperimentSettings]]:
    """The groups, each with a name that has runs with its very settings, if its own has none.

    A control belongs to the method that its name says, and keeps it.
    """
    names: dict[str, str] = {}
    for folder in runs_in(runs_dir):
        with suppress(UsageError):  # damage is reported where such a run is read
            there = folder.experiment
            if folder.begun:
                names.setdefault(_made_of(there), there.name)
    found: dict[tuple[str, int], Sequence[ExperimentSettings]] = {}
    for group in groups:
        own, begun = group[0].name, any(RunFolder.of(runs_dir, each).begun for each in group)
        name = own
        if not begun and not own.endswith(OF_CONTROL):
            name = names.setdefault(_made_of(group[0]), own)
        if name != own:
            said = f"has the settings of {name}, and is not made again under another name"
            say(f"{own}: {said}", err=True)
        renamed = group if name == own else [replace(seeded, name=name) for seeded in group]
        found.setdefault((name, group[0].seed), renamed)
    return list(found.values())


def _made_of(experiment: ExperimentSettings) -> str:
    """All settings that runs of one name have alike, but the name."""
    return repr(sorted(settings_of(experiment, (*WORKERS, "name", "seed")).items()))


@dataclass(frozen=True)
class Seeds:
    """Runs that differ in their seed: a unit of work for any process."""

    table: Mapping[str, Any]  # the experiment: what it names is imported where it is run
    seeds: tuple[int, ...]
    runs_dir: Path
    sources: Sources

    @classmethod
    def of(cls, group: Sequence[ExperimentSettings], runs_dir: Path, sources: Sources) -> Seeds:
        """The runs of these experiments."""
        seeds = tuple(seeded.seed for seeded in group)
        return cls(plain(group[0]), seeds, runs_dir, sources)

    @property
    def title(self) -> str:
        """Name of the comparison in messages."""
        return titled(self.table["name"], self.seeds)

    def experiments(self) -> list[ExperimentSettings]:
        """Experiments to run."""
        experiment: ExperimentSettings = structured(self.table, ExperimentSettings)
        return [experiment.with_seed(seed) for seed in self.seeds]

    @property
    def folders(self) -> list[RunFolder]:
        """Folders of the runs."""
        return [RunFolder.of(self.runs_dir, seeded) for seeded in self.experiments()]

    def make(self, screen: Screen) -> JobMade[Seeds]:
        """Make the runs together if that is faster, except those of other processes.

        Otherwise each run becomes a unit of its own.
        """
        folders: list[RunFolder] = []
        taken: list[int] = []
        for seeded in self.experiments():
            try:
                with writing_to(self.runs_dir.parent):
                    folder = RunFolder.begin(self.runs_dir, seeded)
                with nullcontext() if folder.finished else folder.locked():
                    folders.append(folder)
            except InUseError:
                taken.append(seeded.seed)
        made, failed = False, list[str]()
        left = [folder for folder in folders if not folder.finished]
        title = titled(self.table["name"], [folder.experiment.seed for folder in left])
        # If another process takes one at this moment, the others are made.
        with suppress(InUseError), noting(failed), naming_refused(title):
            made = advance_together(left, self.sources, screen)
        if not made and not failed and len(folders) > 1:
            parts = [replace(self, seeds=(folder.experiment.seed,)) for folder in folders]
            return JobMade(parts, self._busy(taken))
        for folder in () if made or failed else folders:
            title = _titled(folder.experiment)
            try:
                with noting(failed), naming(title), naming_refused(title):
                    advance(folder, self.sources, screen, command="the same command")
            except InUseError:
                taken.append(folder.experiment.seed)
        return JobMade((), self._busy(taken), failed)

    def _busy(self, taken: Sequence[int]) -> Sequence[Seeds]:
        return [replace(self, seeds=tuple(taken))] if taken else []


def _make(groups: Sequence[Seeds], screen: OwnScreen, jobs: int) -> tuple[list[Seeds], list[str]]:
    """Make the remaining runs; return those that other processes are making, and failures."""
    left: JobMade[Seeds] = JobMade()
    if jobs > 1:
        left = _in_jobs(groups, screen, jobs)
    else:
        for group in groups:
            left = left.beside(_here(group, screen))
    return [*left.busy], [*left.failed]


def _here(group: Seeds, screen: OwnScreen) -> JobMade[Seeds]:
    """Make it in this process."""
    with nothing_left_of(group.folders):
        made = group.make(screen)
        left = replace(made, parts=())
        for part in made.parts:
            left = left.beside(part.make(screen))
    return left


def _in_jobs(groups: Sequence[Seeds], screen: OwnScreen, jobs: int) -> JobMade[Seeds]:
    """Make it in as many processes, if any of it is left."""
    left = [group for group in groups if not all(folder.finished for folder in group.folders)]
    for group in groups:
        if group not in left:
            _here(group, screen)  # which says that it is finished
    folders = [folder for group in left for folder in group.folders]
    runs = sum(not folder.finished for folder in folders)
    with interruptible("the same command"), nothing_left_of(folders):
        return make_in_jobs(left, runs, jobs, screen)
