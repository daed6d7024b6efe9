"""The command that makes a table or figure of a paper again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from umbel.checks import UsageError, nearest
from umbel.cli.catalogue import complete_papers
from umbel.cli.options import SEEDS, FilePath, data_dir_option, jobs_option, runs_dir_option

if TYPE_CHECKING:
    from umbel.client.kernel_choice import Precision
    from umbel.papers.base import Reproduction, Size
    from umbel.papers.saved_results import SavedResults

LINES = 2
"""Progress lines for a run where output is not a terminal."""


@click.command()
@click.argument("name", shell_complete=complete_papers)
@click.option(
    "--size",
    type=click.Choice(["smoke", "reduced", "full"]),
    default="reduced",
    show_default=True,
)
@click.option(
    "--only",
    multiple=True,
    metavar="NAME",
    help="Do only this row or column of the table; may be given several times.",
)
@click.option(
    "--precision",
    type=click.Choice(["full", "bf16"]),
    default="full",
    show_default=True,
    help="Precision in which clients compute.",
)
@click.option("--seeds", type=SEEDS, help="Number of seeds; default: as listed.")
@click.option("--keep", type=FilePath(), help="Folder for the results and figure.")
@jobs_option
@runs_dir_option
@data_dir_option
def reproduce(
    name: str,
    size: Size,
    only: tuple[str, ...],
    precision: Precision,
    seeds: int | None,
    keep: Path | None,
    jobs: int,
    runs_dir: Path,
    data_dir: Path | None,
) -> None:
    """Make the table or figure NAME of a paper again, and print the paper's numbers beside ours.

    `umbel list papers` shows the names. Runs that are done are not done again: what was stopped
    goes on by the same command. With --jobs several are made at once. What is printed and kept has
    every result that is there: those of other rows and columns than --only names, too, over the
    first seeds that are done. A run that diverges, or gets too few usable replies, stops no other;
    the status is then 1, as it is if a run was ended before its last round, or if its folder holds
    another experiment.
    """
    from umbel.cli.compare import make_runs
    from umbel.cli.execute import OwnScreen, end_if, interruptible, no_empty_folders
    from umbel.cli.printing import say
    from umbel.data.sources import Sources
    from umbel.files.atomic import writing_to
    from umbel.files.reading import check_folder, check_place
    from umbel.papers.runner import left_out, results, runs_left

    wanted = _find(name).in_precision(precision)
    part = wanted.only(only, size)
    count = seeds or wanted.seeds[size]
    half = precision != "full"
    made_so = size + half * f"-{precision}"
    place = runs_dir / f"reproduce-{made_so}"
    folder, option = (keep, "--keep") if keep else (place, "--runs-dir")
    file = folder / f"{name}-{made_so}.json"
    check_folder(folder, option)
    with interruptible("the same command"), no_empty_folders([folder]):
        with writing_to(folder, option):
            folder.mkdir(parents=True, exist_ok=True)
        check_place(file, option)
        left, sources = runs_left(part, size, range(count), place), Sources.default(data_dir)
        failed = make_runs(left, place, sources, OwnScreen(LINES), jobs)
    command = f"umbel reproduce {name} --size {size}" + half * f" --precision {precision}"
    command += f" --seeds {seeds}" if seeds else ""
    saved = results(wanted, size, range(count), place, command, part)
    if saved.cells:
        _show_and_keep(wanted, saved, file)
    for why in left_out(wanted, size, range(count), place, without=part):
        say(f"left out: {why}", err=True)  # of rows or columns that are not asked for
    end_if([*failed, *left_out(part, size, range(count), place)])


def _show_and_keep(wanted: Reproduction, saved: SavedResults, file: Path) -> None:
    """Print the tables, and write the results and their figure."""
    from umbel.cli.printing import print_tables
    from umbel.papers.comparing import summary
    from umbel.papers.figures import charts
    from umbel.papers.page import tables
    from umbel.report.figures.drawing import draw

    print_tables(*tables(wanted, saved))
    saved.write(file)
    click.echo(f"{summary(wanted, saved)}; kept: {file}")
    drawn = file.with_suffix(".svg")
    try:
        draw(charts(wanted, saved), drawn)
        click.echo(f"drawn: {drawn}")
    except UsageError as error:  # the table is what was asked for: a figure is a bonus
        click.echo(f"not drawn: {error}", err=True)


def _find(name: str) -> Reproduction:
    from umbel.papers.catalogue import REPRODUCTIONS

    if name not in REPRODUCTIONS:
        raise UsageError(f"name: {name!r} is not known; {nearest(name, REPRODUCTIONS)}")
    return REPRODUCTIONS[name]
