"""Commands that run experiments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from umbel.checks import UsageError
from umbel.cli.catalogue import complete_comparisons, complete_experiments, complete_runs
from umbel.cli.loading import loading
from umbel.cli.options import (
    SEEDS,
    FilePath,
    data_dir_option,
    form_options,
    jobs_option,
    judge_option,
    max_time_option,
    metrics_option,
    no_import_option,
    rounds_option,
    runs_dir_option,
    set_option,
    until_option,
    workers_option,
)
from umbel.cli.printing import RowFormat

if TYPE_CHECKING:
    from umbel.experiment.experiment import ExperimentSettings
    from umbel.folder.run_folder import RunFolder


@click.command()
@click.argument("experiment", shell_complete=complete_experiments)
@click.option("--seed", type=int, help="Instead of the experiment's own.")
@runs_dir_option
@data_dir_option
@set_option
@until_option
@max_time_option
@metrics_option
@no_import_option
def run(
    experiment: str,
    seed: int | None,
    runs_dir: Path,
    data_dir: Path | None,
    settings: tuple[str, ...],
    until: tuple[str, ...],
    max_time: str | None,
    metrics: str | None,
    no_import: bool,
) -> None:
    """Run one EXPERIMENT: a TOML file, or the name of one that `umbel list experiments` shows."""
    with loading():
        from umbel.cli.execute import advance, nothing_left_of
        from umbel.cli.options import announce
        from umbel.cli.show import print_run
        from umbel.data.sources import Sources
        from umbel.experiment.library import find_experiment
        from umbel.experiment.toml_file import read, warn_of_dropped
        from umbel.export.openmetrics import address_of
        from umbel.files.atomic import writing_to
        from umbel.folder.run_folder import RunFolder
        from umbel.run.stopping import Budget

    budget = Budget.of(until, max_time)
    address = None if metrics is None else address_of(metrics, "--metrics")
    file = find_experiment(experiment)
    chosen = read(file, settings, allow=lambda names: announce(names, no_import))
    warn_of_dropped(file, settings, chosen)
    chosen = chosen if seed is None else chosen.with_seed(seed)
    sources = Sources.default(data_dir)
    folder = RunFolder.of(runs_dir, chosen)
    with nothing_left_of([folder]):
        with writing_to(runs_dir):
            RunFolder.create(folder.path, chosen, budget)
        advance(folder, sources, describing=True, metrics=address)
    print_run(folder)


@click.command()
@click.argument("run", type=FilePath(), shell_complete=complete_runs)
@data_dir_option
@rounds_option
@until_option
@max_time_option
@workers_option
@metrics_option
@no_import_option
def resume(
    run: Path,
    data_dir: Path | None,
    rounds: str | None,
    until: tuple[str, ...],
    max_time: str | None,
    workers: int | Literal["auto"] | None,
    metrics: str | None,
    no_import: bool,
) -> None:
    """Go on with a RUN that was stopped, from its last checkpoint.

    With --rounds, --until or --max-time it ends there; with --rounds a finished RUN goes on, too.
    """
    with loading():
        from umbel.cli.execute import advance
        from umbel.cli.options import allow_rounds
        from umbel.cli.show import print_run
        from umbel.experiment.places import sources_of
        from umbel.export.openmetrics import address_of
        from umbel.folder.resuming import reopened, replan
        from umbel.folder.run_folder import RunFolder

    address = None if metrics is None else address_of(metrics, "--metrics")
    folder = RunFolder.open(run)
    allow_rounds(folder, no_import)
    if rounds is not None or until or max_time is not None:
        going = reopened(folder, None, data_dir, workers)
        replan(folder, going, rounds, until, max_time)
    advance(folder, sources_of(folder.path, data_dir), workers=workers, metrics=address)
    print_run(folder)


@click.command()
@click.argument("run", type=FilePath(), shell_complete=complete_runs)
@data_dir_option
@no_import_option
def finish(run: Path, data_dir: Path | None, no_import: bool) -> None:
    """End a RUN with the rounds that are done: write its models and clusters."""
    from umbel.cli.options import allow_rounds
    from umbel.cli.show import print_run
    from umbel.folder.run_folder import RunFolder
    from umbel.result.run import finish as finish_

    allow_rounds(RunFolder.open(run), no_import)
    finish_(run, data_dir=data_dir)
    print_run(RunFolder.open(run))


@click.command()
@click.argument("folder", shell_complete=complete_comparisons)
@click.option("--seeds", type=SEEDS, default=3, show_default=True)
@click.option("--first-seed", type=click.IntRange(min=0), default=0, show_default=True)
@jobs_option
@runs_dir_option
@data_dir_option
@set_option
@click.option(
    "--control",
    is_flag=True,
    help="Add, for each clustered method, random clusters of the sizes that it found.",
)
@judge_option
@no_import_option
@form_options
def compare(
    folder: str,
    seeds: int,
    first_seed: int,
    jobs: int,
    runs_dir: Path,
    data_dir: Path | None,
    settings: tuple[str, ...],
    control: bool,
    judge: str | None,
    no_import: bool,
    form: RowFormat | None,
) -> None:
    """Run every experiment of a FOLDER under several seeds, and print one table.

    FOLDER holds TOML files, or is the name of a comparison that `umbel list` shows. Runs that are
    finished already are not made again, and runs that were stopped go on. With --jobs several are
    made at once. Several commands may work on one comparison, too: each makes runs that no other is
    making.

    A setting may have several values, as in --set algorithm.lam=0.1,0.2,0.5: then there is a row
    for each. With one value or several, an experiment without that setting runs without it.

    A run that diverges, or gets too few usable replies, stops no other: it is named after the
    table, and the status is 1.

    With --control each clustered method is followed by its control: FedAvg in clusters of the same
    sizes, of clients drawn at random.
    """
    with loading():
        from umbel.cli.compare import make_all, strangers_named, sweeps_in
        from umbel.cli.options import announce
        from umbel.data.sources import Sources
        from umbel.experiment.library import find_comparison
        from umbel.result.control import check_room, controls

    source = find_comparison(folder)
    announce(strangers_named(source, settings), no_import)
    experiments = sweeps_in(source, settings)
    _check_judge(judge, form, experiments)
    if control:
        check_room(experiments)
    place, numbers = runs_dir / source.resolve().name, range(first_seed, first_seed + seeds)
    groups = [[experiment.with_seed(n) for n in numbers] for experiment in experiments]
    sources = Sources.default(data_dir)
    folders, failed = make_all(groups, place, sources, quiet=form is not None, jobs=jobs)
    if control:
        finished = [folder for folder in folders if folder.finished]
        each = [[seeded] for group in controls(finished) for seeded in group]
        further = make_all(each, place, sources, quiet=form is not None, jobs=jobs)
        folders, failed = folders + further[0], failed + further[1]
    _print_made(folders, failed, judge, form)


def _print_made(
    folders: Sequence[RunFolder], failed: Sequence[str], judge: str | None, form: RowFormat | None
) -> None:
    """Print the runs as rows or tables, and name those that failed; if any has, exit.

    Raises `UsageError` for a measure that none of them has, when all else is printed.
    """
    from umbel.cli.execute import end_if, name_failed
    from umbel.cli.printing import print_rows, print_tables
    from umbel.report.terminal import comparison as standing_tables
    from umbel.report.terminal import results as terminal
    from umbel.result.run import Result
    from umbel.result.tables import results_of

    if form is not None:
        print_rows(results_of(folders).runs, form)
    elif runs := [Result(folder) for folder in folders if folder.finished]:
        tables = terminal.results(runs)
        try:
            tables += standing_tables.statistics(runs, judge)
        except UsageError:
            print_tables(*tables)
            name_failed(failed)
            raise
        print_tables(*tables)
    end_if(failed)


def _check_judge(
    judge: str | None, form: RowFormat | None, experiments: Sequence[ExperimentSettings]
) -> None:
    """Raise `UsageError` for a measure that is not known, or that would not count."""
    from umbel.result.statistics.measures import measure_named

    if judge is None:
        return
    measure_named(judge, experiments)
    if form is not None:
        raise UsageError("--judge: rows have every measure; leave it out with --json and --csv")
