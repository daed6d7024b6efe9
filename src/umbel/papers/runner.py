"""The runs of a reproduction: those that are left, and the results of those that are finished."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from itertools import count, takewhile
from pathlib import Path
from typing import Any

import numpy as np

from umbel.checks import UsageError, command
from umbel.experiment.differences import check_same
from umbel.experiment.experiment import ExperimentSettings
from umbel.folder.run_folder import RunFolder
from umbel.papers.base import Cell, Reproduction, RoundsPlot, Size, SpectrumPlot
from umbel.papers.comparing import SAVED
from umbel.papers.measures import measured, series
from umbel.papers.saved_results import CellResult, SavedResults, curve, made_in
from umbel.result.run import load
from umbel.server.cluster_count import singular_values
from umbel.summary import counted

log = logging.getLogger(__name__)


def runs_left(
    wanted: Reproduction, size: Size, seeds: Sequence[int], runs_dir: Path
) -> list[list[ExperimentSettings]]:
    """The runs that are left to do; those of one group may be done side by side.

    Cells may share an experiment, which is then done once. Runs whose folder holds another
    experiment are not made: `left_out` names them.
    """
    groups = []
    for experiment in distinct_experiments(wanted, size):
        every = [experiment.with_seed(seed) for seed in seeds]
        left = [
            seeded
            for seeded in every
            if not (RunFolder.of(runs_dir, seeded).finished or taken(runs_dir, seeded))
        ]
        groups += [left] if wanted.lockstep and left else [[seeded] for seeded in left]
    return groups


def distinct_experiments(wanted: Reproduction, size: Size) -> list[ExperimentSettings]:
    """Each that is run, those of one scenario together."""
    cells = wanted.cells(size)
    distinct = {cell.experiment.name: cell.experiment for cell in cells}.values()
    # Sorting is stable: the order within a scenario is kept.
    return sorted(distinct, key=lambda experiment: repr(experiment.scenario))


def taken(runs_dir: Path, experiment: ExperimentSettings) -> str:
    """Return why the folder of this name can't hold the run; "" if it can."""
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
    """Return the notes about the processes that made a run; nothing if they are damaged."""
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
    """Return True if the run has all rounds, in a folder of no other experiment."""
    folder = RunFolder.of(runs_dir, experiment)
    if not folder.finished or taken(runs_dir, experiment):
        return False
    return len(folder.records()) == experiment.most_rounds


def left_out(
    wanted: Reproduction,
    size: Size,
    seeds: Sequence[int],
    runs_dir: Path,
    without: Reproduction | None = None,
) -> Iterator[str]:
    """Return a sentence for each run that can't be a result: stopped early, or another's.

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
    if stop is None or stop.rounds >= experiment.most_rounds:
        return ""
    how = command("resume", folder.path, "--rounds", experiment.most_rounds)
    planned = counted(experiment.most_rounds, "round")
    return f"stopped after {stop.rounds} of {planned}: {stop.why}; go on with `{how}`"


def _result(wanted: Reproduction, cell: Cell, folders: Sequence[RunFolder]) -> CellResult:
    records = [folder.records() for folder in folders]
    rounds = cell.experiment.most_rounds
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
