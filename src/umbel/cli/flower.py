"""Commands about Flower apps."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from shlex import quote

import click
from rich.console import Console

from umbel.checks import UsageError, check
from umbel.cli.options import FilePath
from umbel.cli.printing import say
from umbel.engines.privacy import NONE
from umbel.experiment.library import find_experiment
from umbel.experiment.toml_file import read, write
from umbel.report.terminal.tables import frameless, row


@click.group()
def flower() -> None:
    """Run experiments over real sites, through Flower."""


@flower.command()
@click.argument("experiment", type=FilePath())
@click.argument("folder", type=FilePath())
def spent(experiment: Path, folder: Path) -> None:
    """Show what each client of a node has spent of its privacy, by the ledger in FOLDER."""
    with _needing_flower():
        from umbel.flower.ledger import read_ledger, spent_elsewhere
    asked, kept = read(experiment, looking=True).privacy, read_ledger(folder)
    expected = "a folder with the ledger of a node that released updates"
    check(bool(kept.entries), "folder", str(folder), expected)
    assert kept.noise is not None
    check(asked.clip is not None, "privacy.clip", asked.clip, "set, as in the node's experiment")
    privacy = replace(asked, noise_multiplier=kept.noise["noise_multiplier"])
    elsewhere = spent_elsewhere(folder)
    caption = f"at delta {privacy.delta:g}, for any other examples of the client"
    heads = ["client", "updates", "epsilon", *(["of all runs"] if elsewhere else [])]
    table = frameless(*heads, caption=caption)
    for client, questions in sorted(kept.entries.items()):
        count, more = len(questions), elsewhere.get(client, NONE)
        in_all = [f"{privacy.epsilon(count, more):.4g}"] if elsewhere else []
        row(table, client, str(count), f"{privacy.epsilon(count):.4g}", *in_all)
    Console().print(table)
    if asked != privacy:
        say(
            f"The updates were released with noise_multiplier {privacy.noise_multiplier:g}, which "
            f"is used here; {experiment} has {asked.noise_multiplier:g}."
        )


@flower.command()
@click.argument("folder", type=FilePath())
@click.option("--experiment", help="Experiment that the app runs: a name, or a TOML file.")
def new(folder: Path, experiment: str | None) -> None:
    """Write a Flower app into a new FOLDER, ready for `flwr run FOLDER SUPERLINK`."""
    with _needing_flower():
        from umbel.flower.carried import Carried, carried
        from umbel.flower.scaffold import write_app
    text, more = None, Carried({}, ())
    if experiment is not None:
        file = find_experiment(experiment)
        found = read(file, looking=True)
        text, more = write(found), carried(found, file.absolute().parent, folder)
    for written in write_app(folder, text, more.files):
        say(written)
    for line in more.others:
        say(line)
    say(f"run it with: flwr run {quote(str(folder))} SUPERLINK --stream")
    say("where SUPERLINK is a name in config.toml of ~/.flwr, or of $FLWR_HOME if that is set")


@contextmanager
def _needing_flower() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        raise UsageError(str(error)) from None
