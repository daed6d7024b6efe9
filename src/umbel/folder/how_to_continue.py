"""Commands and calls for the user that resume, finish, show or mend a folder, for messages."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from umbel.checks import UsageError, command
from umbel.experiment.layers import IN_PYTHON
from umbel.files.reading import EXPERIMENT, read_bytes
from umbel.files.seals import BROKEN, json_value

NODES = "nodes.json"
"""File with the clients of each node."""

ROLL = "clients.json"
"""File with the names of the clients, by number, and the server's knowledge of their examples."""

OVER_FLOWER = "is a run over Flower, with clients at their nodes: the same `flwr run` continues it"

NOT_HERE = "is a run over Flower, whose server does not know"
"""Beginning of the refusal of newcomers that only sites could encode."""


def over_flower(folder: Path) -> bool:
    """Return True if the server of a Flower app has written this folder."""
    return (folder / NODES).is_file()


def names_on_the_roll(folder: Path) -> list[str]:
    """The name of each client; none for another run. Raises `UsageError` for a damaged file."""
    return json_value(folder / ROLL, lambda roll: list(map(str, roll["names"]))) or []


def inputs_on_the_roll(folder: Path) -> str:
    """The meaning that sites' tables have; "" if it is not known, or for another run.

    Raises `UsageError` for a damaged file.
    """
    return json_value(folder / ROLL, lambda roll: str(roll["inputs"])) or ""


Way = Literal["files", "python", "flower"]
"""Place of a run's data: in files, in Python alone, or at the nodes of Flower."""


def in_python(run: Path) -> bool:
    """Return True if only Python has the data of a run; False if its file can't be read."""
    try:
        table = tomllib.loads(read_bytes(run / EXPERIMENT).decode())
        return bool(table["scenario"]["name"] == IN_PYTHON)
    except BROKEN:
        return False


def way_of(run: Path) -> Way:
    """Return the place of a run's data."""
    if over_flower(run):
        return "flower"
    return "python" if in_python(run) else "files"


def way_on(run: Path, verb: str = "resume") -> str:
    """Return the command or call that resumes or finishes this run, for messages."""
    said: dict[Way, str] = {
        "files": f"`{command(verb, run)}`",
        "python": f'umbel.{verb}("{run}", run)',
        "flower": "the same `flwr run`",
    }
    return said[way_of(run)]


def held(run: Path, finished: bool) -> str:
    """Describe the run in a folder that another run wants to use, and how to go on with it."""
    if finished:
        see = f"""`{command("show", run)}` or umbel.load("{run}")"""
        return f"holds a finished run; see its results by {see}"
    also = f' or umbel.resume("{run}")' if way_of(run) == "files" else ""
    return f"holds a run already; go on with it by {way_on(run)}{also}"


ADVICE_FILE = "advice.json"


def holds_advice(folder: Path) -> bool:
    """Return True if `umbel advise` wrote this folder."""
    return (folder / ADVICE_FILE).is_file()


def check_no_advice(folder: Path) -> None:
    """Raise `UsageError` for a folder of advice, with the commands that use it."""
    if not holds_advice(folder):
        return
    next_ = folder / "experiment.toml"
    also = f", and `{command('run', next_)}` runs what it advises" if next_.is_file() else ""
    raise UsageError(
        f"{folder}: holds advice and no run; `{command('report', folder)}` shows it{also}"
    )


@contextmanager
def putting_right(run: Path) -> Iterator[None]:
    """Add advice to errors in the `with` block about files that resuming the run writes again."""
    try:
        yield
    except UsageError as error:
        how = f"remove clusters.csv, and {way_on(run)} writes it and the models again"
        raise UsageError(f"{error}; {how}") from None
