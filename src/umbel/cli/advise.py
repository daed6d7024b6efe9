"""The command that says whether to cluster."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from umbel.checks import UsageError
from umbel.cli.options import FilePath, data_dir_option, no_import_option, set_option
from umbel.cli.printing import print_tables, say

if TYPE_CHECKING:
    from rich.table import Table

    from umbel.advice.summary import ContenderRow, Summary

LEAST_NAME_WIDTH = 16
"""Smallest width of the column of names, in characters."""


@click.command()
@click.argument("data")
@click.option(
    "--budget",
    default="80",
    show_default=True,
    metavar="ROUNDS|TIME",
    help="Rounds that each way to serve the clients may train for, or a time for all, such as 5m.",
)
@click.option("--seed", type=click.IntRange(min=0), help="Of everything random; 0 unless set.")
@click.option(
    "--out",
    type=FilePath(file_okay=False),
    default=Path("advice"),
    show_default=True,
    help="Folder for the advice, the experiment to run next, and a page.",
)
@data_dir_option
@set_option
@no_import_option
def advise(
    data: str,
    budget: str,
    seed: int | None,
    out: Path,
    data_dir: Path | None,
    settings: tuple[str, ...],
    no_import: bool,
) -> None:
    """Say whether to train one model, several or one each for the clients in DATA, and how sure.

    DATA is a folder with a .npz file for each client, a table (CSV or Parquet), the name of a
    scenario (of your own: module:Name), or an experiment. Ways to serve the clients are compared on
    validation examples; test examples are opened once, at the end. With --set
    scenario.client=COLUMN and the like a table is described, and with --set model.name=NAME the
    network is chosen.
    """
    from umbel.advice.advice_folder import NEXT, check_free, save, to_run
    from umbel.advice.adviser import advise as advise_
    from umbel.advice.adviser import next_experiment
    from umbel.advice.data_source import asked_about, local_training
    from umbel.advice.summary import summary
    from umbel.cli.execute import no_empty_folders
    from umbel.cli.options import announce
    from umbel.data.sources import Sources
    from umbel.settings import whole_path

    check_budget(budget)
    check_free(out)
    asked = asked_about(data, settings, seed, allow=lambda names: announce(names, no_import))
    federation = asked.federation(Sources.default(data_dir))
    for line in str(federation).splitlines():
        say(line)
    with no_empty_folders([out]):
        make_place(out)
        found = advise_(
            federation,
            asked.net(federation),
            local=local_training(asked, data, settings),
            budget=budget,
            participation=asked.participation,
            engine=asked.engine,
            limits=asked.limits,
            faults=asked.faults,
            seed=asked.seed,
            progress=lambda line: say(f"  {line}", err=True),
        )
        told = replace(
            summary(found), data_dir="" if data_dir is None else str(whole_path(data_dir))
        )
        print_advice(told)
        files = save(out, told, lambda: next_experiment(found, asked))
    say(f"written: {', '.join(str(file) for file in files)}")
    say(f"to run it: {to_run(out / NEXT, told)}")


def make_place(out: Path) -> None:
    """Make the folder, and say if it holds advice. Raises `UsageError` if no file can be made."""
    from umbel.advice.advice_folder import FOUND
    from umbel.files.atomic import writing_to
    from umbel.files.reading import check_place

    if (out / FOUND).exists():
        say(f"the advice in {out} will be replaced", err=True)
    with writing_to(out, "--out"):
        out.mkdir(parents=True, exist_ok=True)
    check_place(out / FOUND, "--out")


def print_advice(told: Summary) -> None:
    """Print the results of the ways, and the advice."""
    print_tables(contenders_table(told))
    for sentence in told.sentences:
        say(sentence)


def check_budget(budget: str) -> None:
    """Raise `UsageError` for an invalid budget, before data are read."""
    from umbel.advice.race import Allowance

    try:
        Allowance.of(budget)
    except UsageError as error:
        raise UsageError(f"--{error}") from None


def contenders_table(told: Summary) -> Table:
    """A table of the ways to serve the clients and their results; fits 80 columns."""
    from rich.text import Text

    from umbel.report.terminal.tables import frameless, row

    caption = (
        "loss: mean over clients, on validation examples; gain: over one model, with its 95% "
        f"interval over {told.interval_over}, of fine-tuning: over one trained for as many epochs; "
        "no gain is shown for clusters that were stopped as they were surely behind; "
        "rounds: after which the loss was lowest, of fine-tuning further epochs; "
        "test: loss on test examples, opened once; *: advised"
    )
    table = frameless("way", caption=caption)
    # Names wrap, but never vanish beside numbers that need much room.
    table.columns[0].min_width = LEAST_NAME_WIDTH
    table.collapse_padding = True
    for name in ("loss", "gain", "95% interval", "rounds", "test"):
        table.add_column(Text(name), justify="right", no_wrap=True)
    for each in told.contenders:
        cells = _cells(each, each.name == told.chosen)
        row(table, *cells)
        for column, cell in zip(table.columns[1:], cells[1:], strict=True):
            column.min_width = max(column.min_width or 0, len(cell))
    return table


def _cells(each: ContenderRow, chosen: bool) -> tuple[str, ...]:
    known = each.gain is not None and each.low is not None
    return (
        f"{each.name}{' *' if chosen else ''}" + (f": {each.stopped}" if each.stopped else ""),
        _number(each.loss),
        _number(each.gain),
        f"{each.low:+.3g} {each.high:+.3g}" if known else "",
        str(each.best_round),
        _number(each.test_loss),
    )


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
