"""The command line: parses, calls, prints.

Help, lists of names and completion answer at once: nothing that loads PyTorch is imported before a
command needs it.
"""

from __future__ import annotations

import logging
import re
import sys
from io import TextIOWrapper

import click

from umbel.checks import QuorumError, UsageError, check, lacking, memory_errors, printable
from umbel.cli.hints import hint_for
from umbel.cli.lazy import CommandPlace, LazyGroup
from umbel.files.atomic import FULL
from umbel.version import __version__

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130

LONGEST_ERROR_CHARACTERS = 1_000
"""Largest number of characters of an error message."""

COMMANDS = {
    "list": CommandPlace("umbel.cli.listing", "list_", "List what there is, by kind."),
    "run": CommandPlace("umbel.cli.run", "run", "Run one experiment."),
    "resume": CommandPlace("umbel.cli.run", "resume", "Go on with a run that was stopped."),
    "finish": CommandPlace("umbel.cli.run", "finish", "End a run with the rounds that are done."),
    "compare": CommandPlace("umbel.cli.run", "compare", "Run a folder of experiments; one table."),
    "bench": CommandPlace("umbel.cli.bench", "bench", "Compare all methods on ten scenarios."),
    "advise": CommandPlace("umbel.cli.advise", "advise", "Say whether to cluster at all, and how."),
    "show": CommandPlace("umbel.cli.show", "show", "Show the results of a run or a comparison."),
    "watch": CommandPlace("umbel.cli.watch", "watch", "Follow a run that goes on elsewhere."),
    "assign": CommandPlace("umbel.cli.show", "assign", "Give newcomers their cluster."),
    "estimate-clusters": CommandPlace(
        "umbel.cli.show", "estimate_clusters", "Estimate how many clusters there are."
    ),
    "report": CommandPlace("umbel.cli.report", "report", "Write a page about runs, for a browser."),
    "export": CommandPlace("umbel.cli.report", "export", "Take a run to another tool."),
    "reproduce": CommandPlace(
        "umbel.cli.reproduce", "reproduce", "Make a paper's table or figure again."
    ),
    "flower": CommandPlace("umbel.cli.flower", "flower", "Run experiments over real sites."),
}


@click.group(
    cls=LazyGroup, places=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="umbel")
@click.option("-v", "--verbose", is_flag=True, help="Explain decisions as they are made.")
def app(verbose: bool) -> None:
    """Clustered federated learning: find which clients belong together, train a model per group."""
    from rich.console import Console
    from rich.logging import RichHandler

    handler = RichHandler(console=Console(stderr=True), show_path=False)
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    handler.setFormatter(Plain("%(message)s"))
    handler.addFilter(Once())
    # Only the package's own logger: libraries such as an HTTP client note a line a request.
    logging.getLogger("umbel").setLevel(logging.INFO if verbose else logging.WARNING)


class Plain(logging.Formatter):
    """Formats log lines; control characters in clients' names and reasons are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), "\n")


class Once(logging.Filter):
    """Passes each message once: the runs of a comparison read the same data."""

    def __init__(self) -> None:
        super().__init__()
        self.before: set[str] = set()

    def filter(self, record: logging.LogRecord) -> bool:
        message = record.getMessage()
        is_new = message not in self.before
        self.before.add(message)
        return is_new


def main() -> None:
    """Run the command line: bad input is one line and exit status 2."""
    _write_whatever_is_said()
    try:
        for argument in sys.argv[1:]:
            expected = lacking(argument)
            check(expected is None, "argument", argument, str(expected))
        with memory_errors():
            status = app.main(prog_name="umbel", standalone_mode=False)
    except click.ClickException as error:
        asked_nothing = type(error).__name__ == "NoArgsIsHelpError"  # of later versions of click
        context = getattr(error, "ctx", None)
        if asked_nothing and context is not None:
            click.echo(context.get_help())
            status = 0
        else:
            status = refused(_said(error), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        status = refused("stopped", INTERRUPTED)
    except UsageError as error:
        status = refused(f"umbel: {error}", BAD_INPUT)
    except OSError as error:
        full = error.errno in FULL
        named = (error.filename is not None or full) and error.strerror is not None
        where = error.filename or "standard output"  # files are named
        message = f"{where}: {error.strerror}" if named else error
        status = refused(f"umbel: {message}", FAILED if full else BAD_INPUT)
    except QuorumError as error:
        status = refused(f"umbel: {error}", FAILED)
    except MemoryError as error:
        said = f": {error}" if str(error) else ""
        status = refused(f"umbel: there is not enough memory{said}", FAILED)
    sys.exit(status)


def _write_whatever_is_said() -> None:
    """Escape characters that the output's encoding lacks, as names may have any."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(errors="backslashreplace")


def _said(error: click.ClickException) -> str:
    """The error in the arguments, and where to find help."""
    where = getattr(error, "ctx", None)
    help_ = f"; see {where.command_path} --help" if where is not None else ""
    said = " ".join(error.format_message().split())  # click puts choices on separate lines
    if hint := hint_for(error, sys.argv):
        return f"umbel: {re.split(r' .?Did you', said)[0].removesuffix('.')}; {hint}"
    return f"umbel: {said.removesuffix('.')}{help_}"


def refused(message: str, status: int) -> int:
    """Print the message as one line on standard error, and return the exit status."""
    line = printable(message)
    click.echo(
        line if len(line) <= LONGEST_ERROR_CHARACTERS else f"{line[:LONGEST_ERROR_CHARACTERS]} ...",
        err=True,
    )
    return status
