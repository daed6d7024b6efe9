"""The command line: parses, calls, prints."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.logging import RichHandler

from umbel import tables
from umbel.budget import Budget
from umbel.checks import UsageError
from umbel.cli import looking, reporting
from umbel.cli.budget import finish, max_time_option, rounds_option, until_option
from umbel.cli.flower import flower
from umbel.cli.options import data_dir_option, runs_dir_option
from umbel.cli.progress import progress
from umbel.cli.reproduce import reproduce
from umbel.config import read
from umbel.data.sources import Sources
from umbel.engines.wrappers import QuorumError
from umbel.execution import execute, execute_together
from umbel.folder import RunFolder
from umbel.outcomes import Outcome
from umbel.saving import reopened, replan
from umbel.shipped import experiments_in, find_comparison, find_experiment
from umbel.version import __version__

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130

LINES = 4
"""Where nobody is watching, a comparison says how it goes so many times a run."""

set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change a setting of the experiment, such as algorithm.num_clusters=6.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="umbel")
@click.option("-v", "--verbose", is_flag=True, help="Say what is decided on the way.")
def app(verbose: bool) -> None:
    """Clustered federated learning: find which clients belong together, train a model per group."""
    level = logging.INFO if verbose else logging.WARNING
    handler = RichHandler(console=Console(stderr=True), show_path=False)
    logging.basicConfig(level=level, format="%(message)s", handlers=[handler])


@app.command()
@click.argument("experiment")
@click.option("--seed", type=int, help="Instead of the experiment's own.")
@runs_dir_option
@data_dir_option
@set_option
@until_option
@max_time_option
def run(
    experiment: str,
    seed: int | None,
    runs_dir: Path,
    data_dir: Path | None,
    settings: tuple[str, ...],
    until: tuple[str, ...],
    max_time: str | None,
) -> None:
    """Run one EXPERIMENT: a TOML file, or the name of one that `umbel list` shows."""
    budget = Budget.of(until, max_time)
    chosen = read(find_experiment(experiment), settings)
    chosen = chosen if seed is None else chosen.with_seed(seed)
    sources = Sources.default(data_dir)
    with _writing_to(runs_dir):
        folder = RunFolder.create(RunFolder.of(runs_dir, chosen).path, chosen)
        folder.set_budget(budget)
    _advance(folder, sources)
    looking.print_run(folder)


@app.command()
@click.argument("run", type=click.Path(path_type=Path))
@data_dir_option
@rounds_option
@until_option
@max_time_option
def resume(
    run: Path,
    data_dir: Path | None,
    rounds: str | None,
    until: tuple[str, ...],
    max_time: str | None,
) -> None:
    """Go on with a RUN that was stopped, from its last checkpoint.

    With --rounds, --until or --max-time it ends there, and a finished RUN goes on, too.
    """
    folder = RunFolder.open(run)
    if rounds is not None or until or max_time is not None:
        replan(folder, reopened(folder, None, data_dir), rounds, until, max_time)
    _advance(folder, Sources.default(data_dir))
    looking.print_run(folder)


@app.command()
@click.argument("folder")
@click.option("--seeds", type=click.IntRange(min=1), default=3, show_default=True)
@click.option("--first-seed", type=click.IntRange(min=0), default=0, show_default=True)
@runs_dir_option
@data_dir_option
@set_option
def compare(
    folder: str,
    seeds: int,
    first_seed: int,
    runs_dir: Path,
    data_dir: Path | None,
    settings: tuple[str, ...],
) -> None:
    """Run every experiment of a FOLDER under several seeds, and print one table.

    FOLDER holds TOML files, or is the name of a comparison that `umbel list` shows. Runs that are
    finished already are not made again, and runs that were stopped go on.
    """
    source = find_comparison(folder)
    experiments = [read(file, settings) for file in experiments_in(source)]
    sources = Sources.default(data_dir)
    outcomes = []
    for experiment in experiments:
        folders = []
        for seed in range(first_seed, first_seed + seeds):
            seeded = experiment.with_seed(seed)
            with _writing_to(runs_dir):
                place = runs_dir / source.resolve().name
                folders.append(RunFolder.begin(place, seeded))
        _advance_all(folders, sources)
        outcomes += [Outcome.of(folder) for folder in folders]
    Console().print(tables.comparison(outcomes))


def _advance_all(folders: Sequence[RunFolder], sources: Sources) -> None:
    """Do what is left of runs that differ in their seed, side by side where that is faster."""
    left = [folder for folder in folders if not folder.finished]
    if len(left) > 1:
        seeds = ", ".join(str(folder.experiment.seed) for folder in left)
        experiment = left[0].experiment
        with (
            _resumable("the same command"),
            progress(f"{experiment.name} seeds {seeds}", experiment.rounds, LINES) as report,
        ):
            if execute_together(left, sources, report):
                return
    for folder in folders:
        _advance(folder, sources, LINES)


def _advance(folder: RunFolder, sources: Sources, lines: int = 1000) -> None:
    """Do the rounds that are left, showing how it goes."""
    experiment, path = folder.experiment, folder.path
    if folder.finished:
        click.echo(f"{path}: finished already: {looking.how_far(folder)}")
        return
    title = f"{experiment.name} seed {experiment.seed}"
    with (
        _resumable(f"umbel resume {path}"),
        progress(title, experiment.rounds, lines) as report,
    ):
        for record in execute(folder, sources):
            report(record)


@contextmanager
def _resumable(command: str) -> Iterator[None]:
    """Say how to go on where something ends the runs."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo(f"stopped; go on with: {command}", err=True)
        raise
    except QuorumError as error:
        kept = "limits and faults stay as they are: for others choose another --runs-dir or name"
        raise QuorumError(f"{error}; {kept}; go on with: {command}") from None


@contextmanager
def _writing_to(runs_dir: Path) -> Iterator[None]:
    """Name the option where the folder of a run can't be made."""
    try:
        yield
    except OSError as error:
        why = f"a folder to write in: {error.strerror or error}"
        raise UsageError(f"--runs-dir: {str(runs_dir)!r} is not {why}") from None


for command in (*looking.COMMANDS, *reporting.COMMANDS, finish, reproduce, flower):
    app.add_command(command)


def main() -> None:
    """Run the command line: bad input is one line and exit status 2."""
    sys.path.append(str(Path.cwd()))  # methods and scenarios of the user's, as "module:Name"
    try:
        status = app.main(prog_name="umbel", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        status = INTERRUPTED
    except UsageError as error:
        click.echo(f"umbel: {error}", err=True)
        status = BAD_INPUT
    except OSError as error:
        named = error.filename is not None and error.strerror is not None
        message = f"{error.filename}: {error.strerror}" if named else error
        click.echo(f"umbel: {message}", err=True)
        status = BAD_INPUT
    except QuorumError as error:
        click.echo(f"umbel: {error}", err=True)
        status = FAILED
    sys.exit(status)
