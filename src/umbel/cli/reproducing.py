"""Making the runs of a reproduction, here or in several processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from umbel.checks import InUseError, naming
from umbel.cli.execute import nothing_left_of
from umbel.cli.jobs.job import JobMade, noting
from umbel.cli.jobs.pool import make_in_jobs
from umbel.cli.printing import say
from umbel.cli.screen import OwnScreen, Screen
from umbel.data.sources import Sources
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.toml_file import plain, structured
from umbel.folder.execution import execute, execute_together
from umbel.folder.run_folder import RunFolder
from umbel.papers.base import Reproduction, Size
from umbel.papers.runner import PieceOfTable, distinct_experiments, pieces, taken

SCREEN = OwnScreen(lines=2)
"""Where the progress of the runs is shown."""


def make_all(
    wanted: Reproduction,
    size: Size,
    seeds: Sequence[int],
    runs_dir: Path,
    sources: Sources,
    jobs: int,
) -> list[str]:
    """Do the rounds that are left of all runs; return why some can't go on.

    A run that another process is making is left to it, and looked at again at the end.
    """
    distinct = distinct_experiments(wanted, size)
    folders = [RunFolder.of(runs_dir, each.with_seed(seed)) for each in distinct for seed in seeds]
    failed: list[str] = []

    def left_to_others() -> bool:
        if jobs == 1:
            left = pieces(wanted, size, seeds, runs_dir, sources)
            return sum(not _made_here(piece, failed) for piece in left) > 0
        units = [
            CellRuns(plain(experiment), group, runs_dir, sources)
            for experiment in distinct
            for group in _groups(_left(experiment, seeds, runs_dir), wanted.lockstep)
        ]
        made = make_in_jobs(units, sum(len(unit.seeds) for unit in units), jobs, SCREEN)
        failed.extend(made.failed)
        return bool(made.busy)

    with nothing_left_of(folders):
        while left_to_others():
            for taken in filter(_in_use, folders):
                say(f"waiting for a run of another process: {taken.path}", err=True)
                with taken.locked(patiently=True):
                    pass
    return list(dict.fromkeys(failed))  # what waited for others is tried again


def _made_here(piece: PieceOfTable, failed: list[str]) -> bool:
    """Make the run, unless another process is making it."""
    try:
        with (
            noting(failed),
            SCREEN.progress(piece.title, piece.rounds) as report,
            naming(piece.title),
        ):
            piece.go(report)
    except InUseError:
        return False
    return True


def _in_use(folder: RunFolder) -> bool:
    """Whether another process is making it."""
    try:
        with folder.locked():
            return False
    except InUseError:
        return True


def _left(experiment: ExperimentSettings, seeds: Sequence[int], runs_dir: Path) -> list[int]:
    """Those seeds whose runs are not finished, and whose folders hold no other experiment."""
    all_of_them = [experiment.with_seed(seed) for seed in seeds]
    return [
        seeded.seed
        for seeded in all_of_them
        if not (RunFolder.of(runs_dir, seeded).finished or taken(runs_dir, seeded))
    ]


def _groups(seeds: Sequence[int], together: bool) -> list[tuple[int, ...]]:
    return [tuple(seeds)] if together and seeds else [(seed,) for seed in seeds]


@dataclass(frozen=True)
class CellRuns:
    """Runs of a cell that differ in their seed: a unit of work for any process."""

    table: Mapping[str, Any]  # the experiment
    seeds: tuple[int, ...]
    runs_dir: Path
    sources: Sources

    @property
    def title(self) -> str:
        """What messages and the progress line call it."""
        alone = len(self.seeds) == 1
        which = f" seed {self.seeds[0]}" if alone else f", {len(self.seeds)} seeds"
        return f"{self.table['name']}{which}"

    def make(self, screen: Screen) -> JobMade[CellRuns]:
        """Make several together if that is faster; otherwise each is a part."""
        experiment: ExperimentSettings = structured(self.table, ExperimentSettings)
        folders = [RunFolder.begin(self.runs_dir, experiment.with_seed(n)) for n in self.seeds]
        failed: list[str] = []
        try:
            with (
                noting(failed),
                screen.progress(self.title, experiment.rounds) as report,
            ):
                if len(folders) == 1:
                    with naming(self.title):
                        for record in execute(folders[0], self.sources):
                            report(record)
                elif not execute_together(folders, self.sources, report):
                    return JobMade([replace(self, seeds=(seed,)) for seed in self.seeds])
        except InUseError:
            return JobMade((), [self])
        return JobMade(failed=failed)
