"""Rows on standard output, for programs."""

from __future__ import annotations

import click

from umbel.checks import printable
from umbel.cli.options import RowFormat
from umbel.runs.rows import Table


def print_rows(table: Table, form: RowFormat) -> None:
    """Print a table as JSON or CSV."""
    click.echo(table.to_json() if form == "json" else table.to_csv(), nl=form == "json")


def say(text: object, err: bool = False) -> None:
    """Print a line, whatever is in it, such as a path or a name that somebody else chose."""
    click.echo(printable(str(text)), err=err)


def say_lines(text: str) -> None:
    """Print lines, whatever is in them."""
    click.echo(printable(text, "\n\t"), nl=False)
