"""Safe reading and writing of user files, with checks of their kind and size."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from umbel.checks import UsageError, check, check_memory

TIMES = 4
"""Smallest memory of values, as a multiple of the size of their text."""

LONGEST_NAME = 255
"""Largest length of a file or folder name on common file systems, in bytes."""


EXPERIMENT = "experiment.toml"
"""File that identifies the folder of a run."""

OF_A_RUN = (
    *(EXPERIMENT, "records.jsonl", "checkpoint.safetensors", "encoding.json", "environment.json"),
    *("clusters.csv", "clusters.seal", "clients.csv", "clients.seal", "budget.json"),
    *("stopped.json", "nodes.json", "clients.json", "places.json"),
)
FOLDERS_OF_A_RUN = ("models", "evidence", "checkpoint-parts")
"""Names that a run writes; nothing else may be written there."""


def files_in(folder: Path, *endings: str) -> list[Path]:
    """The files of a folder with one of these endings, such as .csv or .CSV, in order.

    Hidden ones are left out: macOS writes a file `._north.csv` beside `north.csv`.
    """
    shown = (file for file in folder.glob("*") if not file.name.startswith("."))
    return sorted(file for file in shown if file.suffix.lower() in endings)


def check_file(file: Path) -> None:
    """Raise `UsageError` unless this is an existing file.

    Opening a pipe would wait for a writer, and reading a device may never end.
    """
    try:
        mode = file.stat().st_mode
    except (OSError, ValueError) as error:  # a path may contain invalid characters
        raise UsageError(f"{file}: can't be read: {_reason(error)}") from None
    if not stat.S_ISREG(mode):
        what = "a folder" if stat.S_ISDIR(mode) else "a pipe or a device"
        raise UsageError(f"{file}: can't be read: it is {what}, not a file")


def check_no_link(*places: Path) -> None:
    """Raise `UsageError` for a link: files would be written, or removed, at its target."""
    for place in places:
        if place.is_symlink():
            raise UsageError(
                f"{place}: a link, so that files would be written elsewhere; remove it"
            )


def read_bytes(file: Path) -> bytes:
    """The content of a file. Raises `UsageError` if it does not fit in memory.

    Files of others can't be trusted: they may be pipes, or claim to be larger than any disk.
    """
    check_file(file)
    try:
        check_memory(TIMES * file.stat().st_size, str(file))
        return file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file}: can't be read: {_reason(error)}") from None


def read_text(file: Path, most: int | None = None) -> str:
    """The text of a file, of at most `most` bytes or as much as fits in memory.

    Spreadsheets and some editors write a byte-order mark before UTF-8 text; it is removed. Raises
    `UsageError` if the file is larger or is not text.
    """
    check_file(file)
    try:
        content = read_bytes(file) if most is None else _beginning(file, most + 1)
        if most is not None and len(content) > most:
            raise UsageError(f"{file}: can't be read: it has more than {most:,} bytes")
        return content.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file}: can't be read: {_reason(error)}") from None


def _beginning(file: Path, most: int) -> bytes:
    with file.open("rb") as opened:
        return opened.read(most)


def check_length(path: Path, what: str) -> None:
    """Raise `UsageError` if a part of a path is longer than file systems allow."""
    longest = max((len(os.fsencode(part)) for part in path.parts), default=0)
    expected = f"one of at most {LONGEST_NAME}, the limit for files"
    check(longest <= LONGEST_NAME, what, f"a name of {longest} bytes", expected)


def check_place(file: Path, what: str) -> None:
    """Raise `UsageError` unless a file can be written there; an existing file is not changed."""
    check_length(file, what)
    place = file.absolute()
    own = file.name in OF_A_RUN and (place.parent / EXPERIMENT).is_file()
    own |= place.parent.name in FOLDERS_OF_A_RUN and (place.parents[1] / EXPERIMENT).is_file()
    if own:
        raise UsageError(f"{what}: {file}: belongs to the run itself; choose another place")
    fine = file.is_file() or not file.exists()
    check(fine, what, str(file), "a file that can be written")
    check_folder(file.parent, what)
    new = not file.exists() and file.parent.is_dir()
    try:
        if new or file.exists():
            file.open("ab").close()
        if new:
            file.unlink()
    except OSError as error:
        raise UsageError(f"{what}: {file}: can't be written: {_reason(error)}") from None


def check_folder(folder: Path, what: str) -> None:
    """Raise `UsageError` unless the folder exists or can be made."""
    check_length(folder, what)
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    check(there.is_dir(), what, str(there), "a folder")


def _reason(error: Exception) -> object:
    return error.strerror if isinstance(error, OSError) and error.strerror else error
