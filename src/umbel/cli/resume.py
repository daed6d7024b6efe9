"""Options and a command about where a run ends."""

from __future__ import annotations

from pathlib import Path

import click

from umbel.cli.completing import complete_runs
from umbel.cli.options import FilePath, data_dir_option, no_import_option

until_option = click.option(
    "--until",
    multiple=True,
    metavar="MEASURE=GOAL",
    help="Stop after the first round with, for example, accuracy=0.9 or more, or loss=0.1 or less.",
)
max_time_option = click.option(
    "--max-time",
    metavar="TIME",
    help="Stop after the round in which this time is used up: 90s, 10m, 2h; a number is seconds.",
)
rounds_option = click.option(
    "--rounds", metavar="N", help="Total number of rounds, such as 80; or how many more, as +20."
)


@click.command()
@click.argument("run", type=FilePath(), shell_complete=complete_runs)
@data_dir_option
@no_import_option
def finish(run: Path, data_dir: Path | None, no_import: bool) -> None:
    """End a RUN with the rounds that are done: write its models and clusters."""
    from umbel.cli.foreign_code import allow_rounds
    from umbel.cli.show import print_run
    from umbel.folder.run_folder import RunFolder
    from umbel.result.run import finish as finish_

    allow_rounds(RunFolder.open(run), no_import)
    finish_(run, data_dir=data_dir)
    print_run(RunFolder.open(run))
