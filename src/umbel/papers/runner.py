"""Do the unfinished runs of a reproduction."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from pathlib import Path

import numpy as np

from umbel.checks import QuorumError, UsageError, command
from umbel.data.federation import Federation
from umbel.data.scenarios.base import Scenario
from umbel.data.sources import Sources
from umbel.papers.base import Cell, Reproduction, RoundsPlot, Size, SpectrumPlot
from umbel.papers.comparing import SAVED
from umbel.papers.measures import measured, series
from umbel.papers.saved_results import CellResult, SavedResults, curve, made_here
from umbel.runs.execution import advance, execute_together, load
from umbel.runs.experiment import Experiment
from umbel.runs.folder import RunFolder
from umbel.runs.records import Record
from umbel.server.cluster_count import singular_values
from umbel.summary import counted

Report = Callable[[Record], None]


@dataclass(frozen=True)
class Piece:
    """Runs that are done together."""

    title: str
    rounds: int
    go: Callable[[Report], None]


def pieces(
    wanted: Reproduction, size: Size, seeds: Sequence[int], runs_dir: Path, sources: Sources
) -> Iterator[Piece]:
    """The runs that are left to do.

    Cells of one scenario are done together, so that its federation is built once a seed. Cells may
    share an experiment, which is then done once. Raises `UsageError` where a folder of that name
    holds another experiment.
    """
    distinct = distinct_experiments(wanted, size)
    for _, group in groupby(distinct, key=lambda experiment: experiment.scenario):
        alike = list(group)
        for experiment in alike if wanted.lockstep else ():
            yield from _side_by_side(experiment, seeds, runs_dir, sources)
        for seed in seeds:
            yield from _one_by_one(alike, seed, runs_dir, sources)


def distinct_experiments(wanted: Reproduction, size: Size) -> list[Experiment]:
    """Each that is run, those of one scenario together."""
    cells = wanted.cells(size)
    distinct = {cell.experiment.name: cell.experiment for cell in cells}.values()
    # Sorting is stable: the order within a scenario is kept.
    return sorted(distinct, key=lambda experiment: repr(experiment.scenario))


def _side_by_side(
    experiment: Experiment, seeds: Sequence[int], runs_dir: Path, sources: Sources
) -> Iterator[Piece]:
    folders = [RunFolder.begin(runs_dir, experiment.with_seed(seed)) for seed in seeds]
    left = [folder for folder in folders if not folder.finished]
    if len(left) > 1:
        title = f"{experiment.name}, {len(left)} seeds"

        def go(report: Report) -> None:
            with suppress(QuorumError):  # reported later, when each is run alone
                execute_together(left, sources, report)

        yield Piece(title, experiment.rounds, go)


def _one_by_one(
    experiments: Sequence[Experiment], seed: int, runs_dir: Path, sources: Sources
) -> Iterator[Piece]:
    folders = [RunFolder.begin(runs_dir, experiment.with_seed(seed)) for experiment in experiments]
    left = [folder for folder in folders if not folder.finished]
    if not left:
        return
    scenario: Scenario = experiments[0].scenario
    built: list[Federation] = []

    def go_on(folder: RunFolder, report: Report) -> None:
        if not built:
            built.append(scenario.build(seed, sources))
        experiment = folder.experiment
        for record in advance(folder, experiment.run(built[0], experiment.engine)):
            report(record)

    for folder in left:
        title = f"{folder.experiment.name} seed {seed}"
        yield Piece(title, folder.experiment.rounds, partial(go_on, folder))


def results(
    wanted: Reproduction, size: Size, seeds: Sequence[int], runs_dir: Path, command: str
) -> SavedResults:
    """The results of the cells of a reproduction whose runs are finished under all seeds."""
    every = wanted.cells(size)
    cells = [cell for cell in every if _finished(cell.experiment, seeds, runs_dir)]
    done = tuple(_result(wanted, cell, seeds, runs_dir) for cell in cells)
    distinct = {cell.experiment.name: cell.experiment for cell in cells}.values()
    folders = [RunFolder.of(runs_dir, e.with_seed(seed)) for e in distinct for seed in seeds]
    spent = sum(record.seconds for folder in folders for record in folder.records())
    part = len(every) if len(done) < len(every) else None
    return SavedResults(wanted.name, size, tuple(seeds), made_here(command, spent), done, part)


def _finished(experiment: Experiment, seeds: Sequence[int], runs_dir: Path) -> bool:
    """Whether its runs have all rounds under all seeds, and are no other experiment's."""
    seeded = [experiment.with_seed(seed) for seed in seeds]
    folders = [RunFolder.of(runs_dir, each) for each in seeded]
    if not all(folder.finished for folder in folders):
        return False
    try:
        for each in seeded:
            RunFolder.begin(runs_dir, each)
    except UsageError:
        return False
    return all(len(folder.records()) == experiment.rounds for folder in folders)


def ended_early(
    wanted: Reproduction, size: Size, seeds: Sequence[int], runs_dir: Path
) -> Iterator[str]:
    """The runs that were stopped, so that their cells have no result: a sentence for each."""
    for experiment in distinct_experiments(wanted, size):
        for seed in seeds:
            folder = RunFolder.of(runs_dir, experiment.with_seed(seed))
            stop = folder.stop if folder.finished else None
            if stop is not None and stop.rounds < experiment.rounds:
                how = command("resume", folder.path, "--rounds", experiment.rounds)
                yield (
                    f"{experiment.name} seed {seed}: stopped after {stop.rounds} of "
                    f"{counted(experiment.rounds, 'round')}: {stop.why}; go on with `{how}`"
                )


def _result(wanted: Reproduction, cell: Cell, seeds: Sequence[int], runs_dir: Path) -> CellResult:
    folders = [RunFolder.of(runs_dir, cell.experiment.with_seed(seed)) for seed in seeds]
    records = [folder.records() for folder in folders]
    rounds = cell.experiment.rounds
    drawn = [plot.measure for plot in wanted.plots if isinstance(plot, RoundsPlot)]
    spectra = any(isinstance(plot, SpectrumPlot) for plot in wanted.plots)
    return CellResult(
        cell.row,
        cell.column,
        rounds,
        {
            name: tuple(_short(measured(name, *run)) for run in zip(folders, records, strict=True))
            for name in wanted.measures
            if not name.startswith(SAVED)
        },
        {name: curve([series(name, run) for run in records]) for name in drawn},
        tuple(_spectrum(folder) for folder in folders) if spectra else (),
    )


def _spectrum(folder: RunFolder) -> tuple[float, ...]:
    values = singular_values(load(folder.path).profile, folder.experiment.seed)
    return tuple(round(float(value), 6) for value in values)


def _short(value: float | None) -> float | None:
    """A number with its significant digits."""
    return None if value is None else float(np.format_float_positional(value, 6, fractional=False))
