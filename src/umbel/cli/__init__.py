"""The command line: parses, calls, prints.

Help, lists of names and completion answer at once: nothing that loads PyTorch is imported before a
command needs it.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import click

from umbel.checks import QuorumError, UsageError
from umbel.cli.lazy import LazyGroup, Place
from umbel.version import __version__

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130

CLUSTERS = Place("umbel.cli.looking", "estimate_clusters", "Estimate how many clusters there are.")

COMMANDS = {
    "list": Place("umbel.cli.listing", "list_", "List what there is, by kind."),
    "run": Place("umbel.cli.running", "run", "Run one experiment."),
    "resume": Place("umbel.cli.running", "resume", "Go on with a run that was stopped."),
    "finish": Place("umbel.cli.budget", "finish", "End a run with the rounds that are done."),
    "compare": Place("umbel.cli.running", "compare", "Run a folder of experiments; one table."),
    "show": Place("umbel.cli.looking", "show", "Show the results of a run or a comparison."),
    "assign": Place("umbel.cli.looking", "assign", "Give newcomers their cluster."),
    "estimate-clusters": CLUSTERS,
    "clusters": Place(CLUSTERS.module, CLUSTERS.attribute, CLUSTERS.help, hidden=True),
    "report": Place("umbel.cli.reporting", "report", "Write a page about runs, for a browser."),
    "export": Place("umbel.cli.reporting", "export", "Take a run to another tool."),
    "reproduce": Place("umbel.cli.reproduce", "reproduce", "Make a paper's table or figure again."),
    "flower": Place("umbel.cli.flower", "flower", "Run experiments over real sites."),
}


@click.group(
    cls=LazyGroup, places=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="umbel")
@click.option("-v", "--verbose", is_flag=True, help="Say what is decided on the way.")
def app(verbose: bool) -> None:
    """Clustered federated learning: find which clients belong together, train a model per group."""
    from rich.console import Console
    from rich.logging import RichHandler

    handler = RichHandler(console=Console(stderr=True), show_path=False)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", handlers=[handler])
    # Only the package's own logger: libraries such as an HTTP client note a line a request.
    logging.getLogger("umbel").setLevel(logging.INFO if verbose else logging.WARNING)


def main() -> None:
    """Run the command line: bad input is one line and exit status 2."""
    sys.path.append(str(Path.cwd()))  # methods and scenarios of the user's, as "module:Name"
    try:
        status = app.main(prog_name="umbel", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        status = error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("stopped", err=True)
        status = INTERRUPTED
    except UsageError as error:
        click.echo(f"umbel: {error}", err=True)
        status = BAD_INPUT
    except OSError as error:
        named = error.filename is not None and error.strerror is not None
        message = f"{error.filename}: {error.strerror}" if named else error
        click.echo(f"umbel: {message}", err=True)
        status = BAD_INPUT
    except QuorumError as error:
        click.echo(f"umbel: {error}", err=True)
        status = FAILED
    sys.exit(status)
