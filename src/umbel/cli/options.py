"""Options that several commands have."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

from umbel.checks import UsageError, shown
from umbel.cli.catalogue import offering
from umbel.cli.printing import say
from umbel.cores import cores

if TYPE_CHECKING:
    from umbel.experiment.experiment import ExperimentSettings
    from umbel.folder.run_folder import RunFolder


SEEDS = click.IntRange(1, 10_000)
"""Type of the option --seeds."""

F = TypeVar("F", bound=Callable[..., Any])

LONGEST_PATH, DEEPEST = 3_500, 250
"""Bytes and parts of a path that leave room for the files of a run."""

MOST_JOBS = 1_000
"""Largest number of processes of one command."""


class FilePath(click.Path):
    """The type of paths: `~` is the home folder, and what no system can make is refused."""

    def __init__(self, *, dir_okay: bool = True, file_okay: bool = True) -> None:
        super().__init__(dir_okay=dir_okay, file_okay=file_okay, path_type=Path)

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> Any:
        """The path. Fails with one line for one that is too long, or has too many folders."""
        text = os.path.expanduser(os.fspath(value))  # noqa: PTH111
        size, depth = len(os.fsencode(text)), len(Path(text).parts)
        if size > LONGEST_PATH or depth > DEEPEST:
            most = f"{LONGEST_PATH:,} and {DEEPEST}"
            self.fail(
                f"a path of {size:,} bytes and {depth:,} parts, of {most} at most", param, ctx
            )
        return super().convert(text, param, ctx)


def job_count(_: click.Context, __: click.Parameter, value: str) -> int:
    """Read a number of jobs from a text such as "2" or "auto"."""
    return min(cores(), _room()) if value == "auto" else _count(value)


def _room() -> int:
    """The largest useful number of jobs; on a GPU, as many as its memory has room for."""
    import torch  # which takes a moment to load

    from umbel.engines.vectorised import SHARE

    return int(1 / SHARE) if torch.cuda.is_available() else MOST_JOBS


def worker_count(
    _: click.Context, __: click.Parameter, value: str | None
) -> int | Literal["auto"] | None:
    """Read a value of `engine.workers`; None if the option is not given."""
    if value is None:
        return None
    return "auto" if value == "auto" else _count(value)


def _count(value: str) -> int:
    if not value.isdecimal() or len(value) > 9 or not 1 <= int(value) <= MOST_JOBS:
        raise click.BadParameter(f"{value!r} is not 1 to {MOST_JOBS:,}, or auto")
    return int(value)


runs_dir_option = click.option(
    "--runs-dir",
    type=FilePath(),
    default=Path("runs"),
    show_default=True,
    help="Where the folders of runs are.",
)
data_dir_option = click.option(
    "--data-dir",
    type=FilePath(),
    help="Where data sets are, one folder each. Default: UMBEL_DATA_DIR, else the hub.",
)
set_option = click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="PATH=VALUE",
    help="Change a setting of the experiment, such as algorithm.num_clusters=6.",
)
jobs_option = click.option(
    "--jobs",
    metavar="N|auto",
    default="1",
    show_default=True,
    callback=job_count,
    shell_complete=offering(lambda: ["auto"]),
    help="Processes that make runs side by side, each with its share of the cores.",
)
workers_option = click.option(
    "--workers",
    metavar="N|auto",
    callback=worker_count,
    shell_complete=offering(lambda: ["auto"]),
    help="Number of processes for clients, in this command only. Results do not depend on it.",
)
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
judge_option = click.option(
    "--judge",
    metavar="MEASURE",
    help="Measure by which methods are compared: accuracy, loss, or a metric of all runs.",
)
only_option = click.option(
    "--only",
    multiple=True,
    metavar="METHOD",
    help="Only this method, as the table or the experiment names it; * stands for any text.",
)
without_option = click.option(
    "--without", multiple=True, metavar="METHOD", help="All but this method."
)
metrics_option = click.option(
    "--metrics",
    metavar="[HOST:]PORT",
    help="Serve the run's numbers to Prometheus while it goes on; HOST is 127.0.0.1 by default.",
)
no_import_option = click.option(
    "--no-import",
    is_flag=True,
    help="Refuse an experiment that would import code outside umbel, named as module:Name.",
)


def form_options(command: F) -> F:
    """`--json` and `--csv`: print rows for programs, and nothing else, on standard output."""
    as_json = click.option("--json", "form", flag_value="json", help="Print rows as JSON.")
    as_csv = click.option("--csv", "form", flag_value="csv", help="Print rows as CSV.")
    return as_json(as_csv(command))


def allow(experiment: ExperimentSettings, no_import: bool) -> None:
    """Print what an experiment will import. Raises `UsageError` if imports are forbidden."""
    from umbel.experiment.layers import strangers_in
    from umbel.experiment.toml_file import plain

    announce(strangers_in(plain(experiment)), no_import)


def allow_parts(experiment: ExperimentSettings, parts: Iterable[str], no_import: bool) -> None:
    """Allow code as `allow` does, for a command that imports only these parts."""
    from umbel.experiment.layers import strangers_in
    from umbel.experiment.toml_file import plain

    table = plain(experiment)
    announce(strangers_in({part: table[part] for part in parts}), no_import)


def allow_rounds(folder: RunFolder, no_import: bool) -> None:
    """Allow code as `allow` does, to resume a run; a run made in Python imports nothing."""
    from umbel.experiment.made_in_python import OwnData

    experiment = folder.experiment
    if not isinstance(experiment.scenario, OwnData):
        allow(experiment, no_import)


def announce(names: Iterable[str], no_import: bool) -> None:
    """Say that these will be imported, if any: names such as "module:Name"."""
    said = ", ".join(dict.fromkeys(map(shown, names)))
    if said and no_import:
        raise UsageError(f"--no-import: {said} would have to be imported")
    if said:
        say(f"imports {said}", err=True)
        sys.path.append(str(Path.cwd()))
