"""The folder of advice: what was found, the experiment to run next, and a page."""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from umbel.advice.page import advice_page
from umbel.advice.summary import Summary
from umbel.checks import UsageError, check, command
from umbel.experiment import toml_file
from umbel.experiment.experiment import ExperimentSettings
from umbel.files.atomic import write_text
from umbel.files.reading import check_no_link, read_text
from umbel.folder.how_to_continue import ADVICE_FILE, holds_advice

FOUND, NEXT, PAGE = ADVICE_FILE, "experiment.toml", "report.html"

LARGEST = 2**26
"""Largest size of a file that is read back, in bytes."""


def check_free(folder: Path) -> None:
    """Raise `UsageError` unless this folder is new, or holds earlier advice."""
    free = not folder.exists() or (
        folder.is_dir() and (not any(folder.iterdir()) or holds_advice(folder))
    )
    check(free, "--out", str(folder), "a new folder, or one with advice in it")


def save(folder: Path, told: Summary, next_: Callable[[], ExperimentSettings] | None) -> list[Path]:
    """Write the folder, and return the files; a page is among them with the extra `umbel[report]`.

    What was found is on disk before `next_` makes the experiment to run next.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = [folder / FOUND]
    write_text(folder / FOUND, json.dumps(asdict(told), indent=1, allow_nan=False) + "\n")
    if next_ is not None:
        write_text(folder / NEXT, toml_file.write(next_(), folder))
        written.append(folder / NEXT)
    if importlib.util.find_spec("vl_convert") is not None:
        written.append(write_page(folder))
    return written


def read_summary(folder: Path) -> Summary:
    """The advice of a folder. Raises `UsageError` where it can't be read."""
    file = folder / FOUND
    try:
        table: Any = json.loads(read_text(file, LARGEST))
        told: Summary = toml_file.structured(table, Summary)
    except (ValueError, TypeError, RecursionError) as error:
        raise UsageError(f"{file}: not the advice that was written: {error}") from None
    return told


def write_page(folder: Path, out: Path | None = None) -> Path:
    """Write the page about the advice of a folder, and return where it is."""
    text = folder / NEXT
    toml = read_text(text, LARGEST) if text.is_file() else ""
    page = folder / PAGE if out is None else out
    if out is None:
        check_no_link(page)
    page.parent.mkdir(parents=True, exist_ok=True)
    name, told = folder.resolve().name, read_summary(folder)
    write_text(page.resolve(), advice_page(name, told, toml, to_run(text.resolve(), told)))
    return page


def to_run(experiment: Path, told: Summary) -> str:
    """The command that runs the experiment of this file, with the data that were asked about."""
    return command("run", experiment, *(["--data-dir", told.data_dir] if told.data_dir else []))
