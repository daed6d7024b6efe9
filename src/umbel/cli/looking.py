"""Commands that look: at what there is, and at what runs came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from textwrap import shorten

import click
from rich.console import Console
from rich.table import Table

from umbel import tables
from umbel.algorithms import ALGORITHMS
from umbel.checks import check
from umbel.cluster_count import count_clusters
from umbel.config import read
from umbel.data.scenarios import SCENARIOS
from umbel.data.scenarios.folder import read_clients
from umbel.execution import load
from umbel.folder import RunFolder
from umbel.models import MODELS
from umbel.outcomes import Outcome
from umbel.papers import REPRODUCTIONS, Reproduction
from umbel.papers.results import duration, kept
from umbel.plots import FORMATS, check_format, draw_singular_values
from umbel.shipped import experiments_in, shipped_comparisons, shipped_experiments

PLOT_HELP = f"Draw it too, to a file that ends in {', '.join(FORMATS)}."


@click.command(name="list")
def list_() -> None:
    """List algorithms, scenarios, models, experiments, comparisons and reproductions."""
    console = Console()
    console.print(_named("algorithms", _summaries(ALGORITHMS)))
    console.print(_named("scenarios", _summaries(SCENARIOS)))
    console.print(_named("models", _summaries(MODELS)))
    experiments = {name: read(file).description for name, file in shipped_experiments().items()}
    console.print(_named("experiments", experiments))
    comparisons = {
        name: ", ".join(file.stem for file in experiments_in(path))
        for name, path in shipped_comparisons().items()
    }
    console.print(_named("comparisons", comparisons))
    console.print(_named("reproductions", {n: _made(r) for n, r in REPRODUCTIONS.items()}))


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--at", help="Rounds, such as 5,10,30: show the accuracy after each.")
@click.option("--reach", help="Show how many rounds it took to reach this, such as purity=0.9.")
def show(run: Path, at: str | None, reach: str | None) -> None:
    """Show what a RUN came to, finished or not; or the comparison in a folder of finished runs."""
    folders = [RunFolder(path.parent) for path in sorted(run.glob("*/experiment.toml"))]
    if not folders:
        folder = RunFolder.open(run)
        if at is None and reach is None:
            print_run(folder)
            return
        folders = [folder]
    finished = [folder for folder in folders if folder.finished]
    check(bool(finished), "run", str(run), "a folder with a finished run in it")
    outcomes = [Outcome.of(folder) for folder in finished]
    wanted = [tables.comparison(outcomes)] if at is None and reach is None else []
    if at is not None:
        wanted.append(tables.course(outcomes, _rounds(at, outcomes)))
    if reach is not None:
        measure, _, goal = reach.partition("=")
        check(goal.replace(".", "", 1).isdecimal(), "--reach", reach, "of the form purity=0.9")
        wanted.append(tables.reached(outcomes, measure, float(goal)))
    Console().print(*wanted, sep="")


def _rounds(at: str, outcomes: Sequence[Outcome]) -> list[int]:
    """The rounds that a list such as 5,10,30 names."""
    numbers = at.replace(" ", "").split(",")
    check(all(map(str.isdecimal, numbers)), "--at", at, "of the form 5,10,30")
    most = max(len(outcome.records) for outcome in outcomes)
    for number in map(int, numbers):
        check(1 <= number <= most, "--at", number, f"a round of the run: 1 to {most}")
    return [int(number) for number in numbers]


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.argument("data", type=click.Path(path_type=Path))
def assign(run: Path, data: Path) -> None:
    """Give newcomers their cluster of a finished RUN, by its method's own rule.

    DATA is a .npz file with arrays x and y, or a folder with one such file a client.
    """
    result = load(run)
    newcomers = read_clients(data, result.made_for[0].num_classes)
    Console().print(tables.assignment(result.assign(newcomers)))


@click.command()
@click.argument("run", type=click.Path(path_type=Path))
@click.option("--plot", type=click.Path(path_type=Path), help=PLOT_HELP)
def clusters(run: Path, plot: Path | None) -> None:
    """Estimate how many clusters there are from what a finished RUN clustered its clients by."""
    if plot is not None:
        check_format(plot)
    result = load(run)
    found = count_clusters(result.profile, result.experiment.seed)
    if plot is not None:
        draw_singular_values(found, plot)
    Console().print(tables.cluster_count(found))
    if plot is not None:
        click.echo(f"drawn: {plot}")


COMMANDS = (list_, show, assign, clusters)


def print_run(folder: RunFolder) -> None:
    """The last round of a run, and its clusters if it is finished."""
    console, records = Console(), folder.records()
    clients = folder.clients() if folder.finished else []
    stopped = f": stopped after {how_far(folder)}" if folder.stop else ""
    console.print(f"{folder.path}{stopped}" + ("" if clients else " (not finished)"))
    if records:
        console.print(tables.last_round(records[-1]))
    if clients:
        console.print(tables.clusters(clients))
    absences = tables.absences(records, [row["client"] for row in clients])
    if absences is not None:
        console.print(absences)


def how_far(folder: RunFolder) -> str:
    """How many rounds are done, and why no more."""
    done, stop = len(folder.records()), folder.stop
    return (
        f"{done} rounds"
        if stop is None
        else (f"{done} of {folder.experiment.rounds} rounds: {stop.why}")
    )


def _named(title: str, entries: Mapping[str, str]) -> Table:
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
    for name, text in entries.items():
        table.add_row(name, text)
    return table


def _made(wanted: Reproduction) -> str:
    """What a reproduction is of, and how long each size took where its result is kept."""
    times = [f"{found.size} {duration(found.made.seconds)}" for found in kept(wanted.name)]
    return f"{wanted.source}; smoke: seconds{''.join(f', {time}' for time in times)}"


def _summaries(registry: Mapping[str, object]) -> dict[str, str]:
    return {name: _summary(entry) for name, entry in registry.items()}


def _summary(entry: object) -> str:
    """What a registered type says of itself, or what a registered value sets."""
    if isinstance(entry, type):
        return " ".join((entry.__doc__ or "").partition("\n\n")[0].split())
    default = type(entry)()
    changed = {k: repr(v) for k, v in vars(entry).items() if v != getattr(default, k)}
    settings = [f"{k}={shorten(v, 50, placeholder=' ...')}" for k, v in changed.items()]
    return f"{type(entry).__name__}({', '.join(settings)})"
