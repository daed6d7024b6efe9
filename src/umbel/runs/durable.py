"""Durable writing: files are complete even if the process is killed, and on disk when written."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

from umbel.checks import UsageError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Error numbers of a full or failing disk."""


PARTIAL = "*.partial"
"""Suffix of incomplete files, which a killed process leaves beside those it was replacing."""


@contextmanager
def replacing(file: Path, settled: bool = True) -> Iterator[Path]:
    """Yields the path of a new file, which replaces this one at the end of the block.

    With `settled`, the new file is then on disk; otherwise only after a call of `settle`.
    """
    beside = file.with_suffix(".partial")
    try:
        with naming(file):
            beside.unlink(missing_ok=True)  # a link would redirect the writing to another place
            yield beside
            if settled:
                _sync(beside)
            beside.replace(file)
            if settled:
                _sync_names(file.parent)
    except BaseException:
        with suppress(OSError):
            beside.unlink(missing_ok=True)
        raise


@contextmanager
def alone(lock: Path) -> Iterator[None]:
    """Hold this lock file exclusively: no other process writes between a read and a write."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(lock):
        yield


def write_text(file: Path, text: str) -> None:
    """Replace a file by this text."""
    with replacing(file) as beside:
        beside.write_text(text, encoding="utf-8")


def write_bytes(file: Path, data: bytes) -> None:
    """Replace a file by these bytes."""
    with replacing(file) as beside:
        beside.write_bytes(data)


def append_text(file: Path, text: str) -> None:
    """Add to a file, on disk when this returns."""
    with naming(file), file.open("a", encoding="utf-8") as opened:
        opened.write(text)
        opened.flush()
        os.fsync(opened.fileno())


@contextmanager
def writing_to(folder: Path, option: str = "--runs-dir") -> Iterator[None]:
    """Raise `UsageError` that names the option where a folder can't be made."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise
        why = f"a folder to write in: {error.strerror or error}"
        raise UsageError(f"{option}: {str(folder)!r} is not {why}") from None


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Add the name of the file to errors of the system, such as a full disk."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(file)) from None


def settle(folder: Path) -> None:
    """Write all files of a folder to disk at once, which is far faster than one by one."""
    # Several names may be links to one file.
    for file in {_identity(file): file for file in folder.iterdir()}.values():
        with naming(file):
            _sync(file)
    _sync_names(folder)


def link(file: Path, other: Path) -> None:
    """Give a file another name, which is a copy where the file system has no links.

    It is on disk only after a call of `settle`.
    """
    try:
        os.link(file, other)
    except OSError:
        with replacing(other, settled=False) as beside:
            shutil.copy(file, beside)


def _identity(file: Path) -> tuple[int, int]:
    """What is the same of all links to a file."""
    there = file.stat()
    return there.st_dev, there.st_ino


def _sync_names(folder: Path) -> None:
    """Write a folder's list of files to disk."""
    if os.name == "posix":  # other systems can't open a folder
        _sync(folder)


def _sync(path: Path) -> None:
    """Flush a file, or a folder's entries, to disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
