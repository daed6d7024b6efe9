"""How a run goes on: on the command line, in Python with its data, or over Flower."""

from __future__ import annotations

import tomllib
from pathlib import Path

from umbel.checks import command
from umbel.data.files import EXPERIMENT, read_bytes
from umbel.runs.deployed import over_flower
from umbel.runs.seals import BROKEN

IN_PYTHON = "umbel.runs.own:OwnData"
"""The scenario's name in the experiment of a run that was made in Python."""


def in_python(run: Path) -> bool:
    """Whether only Python has the data of a run; false if its experiment can't be read."""
    try:
        table = tomllib.loads(read_bytes(run / EXPERIMENT).decode())
        return bool(table["scenario"]["name"] == IN_PYTHON)
    except BROKEN:
        return False


def way_on(run: Path, verb: str = "resume") -> str:
    """What resumes a run, or finishes it, where its data are known: a phrase for messages."""
    if over_flower(run):
        return "the same `flwr run`"
    return f'umbel.{verb}("{run}", run)' if in_python(run) else f"`{command(verb, run)}`"


def held(run: Path, finished: bool) -> str:
    """What is in a folder that another run asked for, and how to use it."""
    if finished:
        see = f"""`{command("show", run)}` or umbel.load("{run}")"""
        return f"holds a finished run; see its results by {see}"
    also = "" if in_python(run) or over_flower(run) else f' or umbel.resume("{run}")'
    return f"holds a run already; go on with it by {way_on(run)}{also}"
