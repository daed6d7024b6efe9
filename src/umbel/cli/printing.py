"""Rows on standard output, for programs."""

from __future__ import annotations

import click

from umbel.cli.options import Form
from umbel.runs.rows import Table


def print_rows(table: Table, form: Form) -> None:
    """Print a table as JSON or CSV."""
    click.echo(table.to_json() if form == "json" else table.to_csv(), nl=form == "json")
