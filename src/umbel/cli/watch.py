"""`umbel watch`: a run that another process is doing."""

from __future__ import annotations

import sys
import time
from contextlib import nullcontext
from pathlib import Path

import click

from umbel.cli.loading import loading
from umbel.cli.printing import say
from umbel.cli.show import run_argument

EVERY_SECONDS = 1.0
"""Seconds between two looks at the files of a run."""


@click.command()
@run_argument
@click.option("--once", is_flag=True, help="Print how the run is now, and end.")
def watch(run: Path, once: bool) -> None:
    """Follow a RUN that another process is doing, until it is finished.

    It reads the files in the folder of the RUN, and writes nothing. If output is not a terminal, it
    prints a line a round. Ctrl-C ends only the watching.
    """
    with loading():
        from rich.console import Console
        from rich.live import Live

        from umbel.folder.how_to_continue import names_on_the_roll
        from umbel.folder.run_folder import RunFolder
        from umbel.report.terminal.watching import Pace, line_of_round, state_of_run
        from umbel.result.run import Result

    console, pace, told = Console(), Pace(), 0
    in_place = console.is_terminal and not once
    with Live(console=console, auto_refresh=False) if in_place else nullcontext() as live:
        while True:
            now = Result(RunFolder.open(run))
            finished, records = now.finished, now.records
            pace.note(time.monotonic(), len(records))
            if live is not None:
                live.update(state_of_run(now, pace), refresh=True)
            elif not once:
                told = min(told, len(records))  # a resumed run may repeat rounds
                names = names_on_the_roll(run)
                for record in records[told:]:
                    say(line_of_round(record, now.experiment.planned_rounds, names))
                told = len(records)
                sys.stdout.flush()
            if finished or once:
                break
            time.sleep(EVERY_SECONDS)
    if not in_place:
        console.print(state_of_run(now, pace))
