"""Commands about Flower apps."""

from __future__ import annotations

from pathlib import Path

import click

from umbel.checks import UsageError
from umbel.config import read, write
from umbel.shipped import find_experiment


@click.group()
def flower() -> None:
    """Run experiments over real sites, through Flower."""


@flower.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option("--experiment", help="What it runs: an experiment by name, or a TOML file.")
def new(folder: Path, experiment: str | None) -> None:
    """Write a Flower app into a new FOLDER, ready for `flwr run FOLDER`."""
    try:
        from umbel.flower.new import write_app
    except ModuleNotFoundError as error:
        raise UsageError(f'{error}: pip install "umbel[flower]" brings it') from None
    text = None if experiment is None else write(read(find_experiment(experiment)))
    for file in write_app(folder, text):
        click.echo(file)
    click.echo(f"run it on this machine with: flwr run {folder}")
