"""Rows for programs, and lines and tables for people, on standard output."""

from __future__ import annotations

import codecs
import sys
from typing import TYPE_CHECKING, Literal

import click

from umbel.checks import printable
from umbel.result.table import Table
from umbel.summary import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from umbel.folder.run_folder import RunFolder

RowFormat = Literal["json", "csv"]
"""Formats of output for programs."""

WIDTH = 80
"""Width in characters that is used if a terminal is too narrow for all columns."""


def print_rows(table: Table, form: RowFormat) -> None:
    """Print a table as JSON or CSV."""
    if form == "csv":
        click.echo(table.to_csv(), nl=False)
        return
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    click.echo(table.to_json(ascii_only=codecs.lookup(encoding).name != "utf-8"))


def say(text: object, err: bool = False) -> None:
    """Print a line without markup or control characters: it may hold names that others chose."""
    click.echo(printable(str(text)), err=err)


def say_lines(text: str) -> None:
    """Print lines, whatever is in them."""
    click.echo(printable(text, "\n\t"), nl=False)


def print_tables(*tables: RenderableType, sep: str = "\n") -> None:
    """Print tables; where columns would vanish in the terminal, in up to `WIDTH` characters."""
    from rich.console import Console
    from rich.measure import Measurement

    console = Console()
    wider = console.options.update(max_width=max(WIDTH, console.width))
    needed = max(Measurement.get(console, wider, table).minimum for table in tables)
    wide = console if needed <= console.width else Console(width=needed)
    wide.print(*tables, sep=sep)


def how_far(folder: RunFolder) -> str:
    """Return the number of rounds done, and the reason for the end."""
    done, stop = len(folder.records()), folder.stop
    if stop is None:
        return counted(done, "round")
    most = folder.experiment.planned_rounds
    return f"{counted(done, 'round') if most is None else f'{done} of {most} rounds'}: {stop.why}"
