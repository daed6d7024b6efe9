"""Files that are whole whenever the process is killed, and on disk once they are written."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from filelock import FileLock

from umbel.checks import UsageError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What the disk says where there is no room on it, or where it fails."""


PARTIAL = "*.partial"
"""Files that are not whole yet: what a killed process leaves beside those that it replaces."""


@contextmanager
def replacing(file: Path, settled: bool = True) -> Iterator[Path]:
    """A new file beside this one to write to, which takes its place at the end of the block.

    It is on disk then, or if it is not to be `settled` at once, after `settle`.
    """
    beside = file.with_suffix(".partial")
    try:
        with naming(file):
            beside.unlink(missing_ok=True)  # a link would lead elsewhere what is written
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
    """Nobody else is in a block with this lock: what is read in it stays so until it is written."""
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
    """Say the name of the file where the disk refuses, as a full one does, to write it."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(file)) from None


def settle(folder: Path) -> None:
    """Have all files of a folder on disk: far faster than each when it is written."""
    for file in folder.iterdir():
        with naming(file):
            _sync(file)
    _sync_names(folder)


def _sync_names(folder: Path) -> None:
    """Have on disk which files a folder holds."""
    if os.name == "posix":  # elsewhere a folder can't be opened
        _sync(folder)


def _sync(path: Path) -> None:
    """Have on disk what was written to a file, or what the system notes of a folder."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
