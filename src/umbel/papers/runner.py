"""Do the unfinished runs of a reproduction."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count, groupby, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from umbel.checks import QuorumError, UsageError, command
from umbel.data.federation import Federation
from umbel.data.scenarios.base import Scenario
from umbel.data.sources import Sources
from umbel.experiment.differences import check_same
from umbel.experiment.experiment import ExperimentSettings
from umbel.folder.execution import advance, execute_together
from umbel.folder.run_folder import RunFolder
from umbel.papers.base import Cell, Reproduction, RoundsPlot, Size, SpectrumPlot
from umbel.papers.comparing import SAVED
from umbel.papers.measures import measured, series
from umbel.papers.saved_results import CellResult, SavedResults, curve, made_in
from umbel.result.run import load
from umbel.run.records import Record
from umbel.server.cluster_count import singular_values
from umbel.summary import counted

log = logging.getLogger(__name__)

Report = Callable[[Record], None]


@dataclass(frozen=True)
class PieceOfTable:
    """Runs that are done together."""

    title: str
    rounds: int
    go: Callable[[Report], None]


def pieces(
    wanted: Reproduction, size: Size, seeds: Sequence[int], runs_dir: Path, sources: Sources
) -> Iterator[PieceOfTable]:
    """The runs that are left to do.

    Cells of one scenario are done together, so that its federation is built once a seed. Cells may
    share an experiment, which is then done once. Runs whose folder holds another experiment are
    not made: `left_out` names them.
    """
    distinct = distinct_experiments(wanted, size)
    for _, group in groupby(distinct, key=lambda experiment: experiment.scenario):
        alike = list(group)
        for experiment in alike if wanted.lockstep else ():
            yield from _side_by_side(experiment, seeds, runs_dir, sources)
        for seed in seeds:
            yield from _one_by_one(alike, seed, runs_dir, sources)


def distinct_experiments(wanted: Reproduction, size: Size) -> list[ExperimentSettings]:
    """Each that is run, those of one scenario together."""
    cells = wanted.cells(size)
    distinct = {cell.experiment.name: cell.experiment for cell in cells}.values()
    # Sorting is stable: the order within a scenario is kept.
    return sorted(distinct, key=lambda experiment: repr(experiment.scenario))


def _side_by_side(
    experiment: ExperimentSettings, seeds: Sequence[int], runs_dir: Path, sources: Sources
) -> Iterator[PieceOfTable]:
    left = _unfinished([experiment.with_seed(seed) for seed in seeds], runs_dir)
    if len(left) > 1:
        title = f"{experiment.name}, {len(left)} seeds"

        def go(report: Report) -> None:
            with suppress(QuorumError):  # reported later, when each is run alone
                execute_together(left, sources, report)

        yield PieceOfTable(title, experiment.rounds, go)


def _one_by_one(
    experiments: Sequence[ExperimentSettings], seed: int, runs_dir: Path, sources: Sources
) -> Iterator[PieceOfTable]:
    left = _unfinished([experiment.with_seed(seed) for experiment in experiments], runs_dir)
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
        yield PieceOfTable(title, folder.experiment.rounds, partial(go_on, folder))


def _unfinished(experiments: Sequence[ExperimentSettings], runs_dir: Path) -> list[RunFolder]:
    usable = [each for each in experiments if not taken(runs_dir, each)]
    folders = [RunFolder.begin(runs_dir, each) for each in usable]
    return [folder for folder in folders if not folder.finished]


def taken(runs_dir: Path, experiment: ExperimentSettings) -> str:
    """Why the folder of this name can't hold the run: it has another's. Empty if it can."""
    folder = RunFolder.of(runs_dir, experiment)
    try:
        if folder.begun:
            check_same(folder.path, folder.experiment, experiment)
    except UsageError as error:
        return str(error)
    return ""


def results(
    wanted: Reproduction,
    size: Size,
    seeds: Sequence[int],
    runs_dir: Path,
    command: str,
    part: Reproduction | None = None,
) -> SavedResults:
    """The results of the cells of a reproduction whose runs are finished.

    Cells of the part that is made, by default all, need finished runs under all these seeds. The
    others keep the results of the first seeds that are finished, from 0 on.
    """
    every = wanted.cells(size)
    asked = {cell.experiment.name for cell in (part or wanted).cells(size)}
    runs = {
        each.name: _finished_runs(each, runs_dir, seeds if each.name in asked else None)
        for each in distinct_experiments(wanted, size)
    }
    cells = [cell for cell in every if runs[cell.experiment.name]]
    done = tuple(_result(wanted, cell, runs[cell.experiment.name]) for cell in cells)
    folders = [folder for group in runs.values() for folder in group]
    spent = sum(record.seconds for folder in folders for record in folder.records())
    made = made_in(command, spent, [s for folder in folders for s in _sessions(folder)])
    missing = len(every) if len(done) < len(every) else None
    return SavedResults(wanted.name, size, tuple(seeds), made, done, missing)


def _sessions(folder: RunFolder) -> list[dict[str, Any]]:
    """What is noted of the processes that made a run; nothing if the notes are damaged."""
    try:
        return folder.sessions.read()
    except UsageError as error:
        log.warning("%s", error)
        return []


def _finished_runs(
    experiment: ExperimentSettings, runs_dir: Path, asked: Sequence[int] | None
) -> list[RunFolder]:
    """Its finished runs: all that are asked for, or none. If none are, those of the first seeds."""
    seeds = count() if asked is None else asked
    seeded = (experiment.with_seed(seed) for seed in seeds)
    done = list(takewhile(lambda each: _finished(each, runs_dir), seeded))
    whole = asked is None or len(done) == len(asked)
    return [RunFolder.of(runs_dir, each) for each in done] if whole else []


def _finished(experiment: ExperimentSettings, runs_dir: Path) -> bool:
    """Whether its run has all rounds, and its folder no other experiment's."""
    folder = RunFolder.of(runs_dir, experiment)
    if not folder.finished or taken(runs_dir, experiment):
        return False
    return len(folder.records()) == experiment.rounds


def left_out(
    wanted: Reproduction,
    size: Size,
    seeds: Sequence[int],
    runs_dir: Path,
    without: Reproduction | None = None,
) -> Iterator[str]:
    """Why runs can't be results: stopped early, or others in their folders; a sentence for each.

    Those of a part that has been looked at are left out by `without`.
    """
    seen = [] if without is None else distinct_experiments(without, size)
    for experiment in distinct_experiments(wanted, size):
        if experiment in seen:
            continue
        for seed in seeds:
            seeded = experiment.with_seed(seed)
            why = taken(runs_dir, seeded) or _stopped_early(RunFolder.of(runs_dir, seeded), seeded)
            if why:
                yield f"{experiment.name} seed {seed}: {why}"


def _stopped_early(folder: RunFolder, experiment: ExperimentSettings) -> str:
    stop = folder.stop if folder.finished else None
    if stop is None or stop.rounds >= experiment.rounds:
        return ""
    how = command("resume", folder.path, "--rounds", experiment.rounds)
    planned = counted(experiment.rounds, "round")
    return f"stopped after {stop.rounds} of {planned}: {stop.why}; go on with `{how}`"


def _result(wanted: Reproduction, cell: Cell, folders: Sequence[RunFolder]) -> CellResult:
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
