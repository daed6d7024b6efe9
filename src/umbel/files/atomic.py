"""Durable writing: files are complete even if the process is killed, and on disk when written."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import inf
from pathlib import Path

from filelock import FileLock

from umbel.checks import UsageError, shown

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Error numbers of a full or failing disk."""


PARTIAL = "*.partial"
"""Names of incomplete files, which a killed process leaves beside those it was replacing."""

OWN_END = r"[0-9a-f]{8}\.partial"
"""End of the names of the folders that `replacing` writes in."""

SCRATCH = re.compile(r"\..*\." + OWN_END, re.DOTALL)
"""Names of the folders that `replacing` writes in."""

STALE = 3600.0
"""Seconds without a change after which nobody writes in such a folder any more."""

WITHIN = "partial"
"""Name of the incomplete file in such a folder, so that nobody takes it for the file itself."""

LONGEST_NAME_BYTES = 200
"""Bytes of a file's name in that of its folder, which may have 255; a digest follows if cut."""


@contextmanager
def replacing(file: Path, settled: bool = True) -> Iterator[Path]:
    """Yields the path of a new file, which replaces this one at the end of the block.

    It is in an empty folder that no other process writes in; what else a library leaves there is
    removed. With `settled`, the new file is then on disk; otherwise only after a call of `settle`.
    """
    scratch = file.with_name(f"{_beginning(file)}{secrets.token_hex(4)}.partial")
    try:
        with naming(file):
            scratch.mkdir()
            beside = scratch / WITHIN
            yield beside
            if settled:
                _sync(beside)
            beside.replace(file)
            if settled:
                _sync_names(file.parent)
                remove_left_of(file, STALE)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def remove_left_of(file: Path, seconds: float = 0.0) -> None:
    """Remove files that killed processes left beside this one, unchanged for so many seconds.

    Other files stay, and what can't be removed.
    """
    ours = re.compile(re.escape(_beginning(file)) + OWN_END)
    with suppress(OSError):  # the file itself is written
        for name in os.listdir(file.parent):  # noqa: PTH208 - faster for folders of many files
            left = file.with_name(name)
            if ours.fullmatch(name) and time.time() - _changed(left) >= seconds:
                shutil.rmtree(left, ignore_errors=True)  # plain files and links stay


def remove_partial(left: Path) -> None:
    """Remove a file, or a folder of `replacing`; other folders stay."""
    if not left.is_dir():
        left.unlink()
    elif SCRATCH.fullmatch(left.name):
        shutil.rmtree(left, ignore_errors=True)


def _beginning(file: Path) -> str:
    """Return the beginning of the names of the folders in which a file is written."""
    name = file.name.encode(errors="surrogateescape")
    if len(name) <= LONGEST_NAME_BYTES:
        return f".{file.name}."
    cut = name[:LONGEST_NAME_BYTES].decode(errors="ignore")
    return f".{cut}-{hashlib.sha256(name).hexdigest()[:16]}."


def _changed(left: Path) -> float:
    """Return the time of the last change of a file or in a folder, inf if it is gone.

    In seconds since 1970.
    """
    try:
        return max(each.stat().st_mtime for each in (left, *left.glob("*")))
    except OSError:
        return inf


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
    """Raise `UsageError` that names the option if a folder can't be made."""
    try:
        yield
    except OSError as error:
        if error.errno in FULL:
            raise
        why = f"a folder to write in: {error.strerror or error}"
        raise UsageError(f"{option}: {shown(str(folder))} is not {why}") from None
    except RecursionError:  # `Path.mkdir` makes the folders above by calling itself
        why = f"a folder to write in: {len(folder.parts):,} folders deep"
        raise UsageError(f"{option}: {shown(str(folder))} is not {why}") from None


@contextmanager
def naming(file: Path) -> Iterator[None]:
    """Add the name of the file to errors of the system, such as a full disk."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), str(file)) from None


def settle(folder: Path) -> None:
    """Write all files of a folder to disk at once, which is far faster than one by one.

    Hidden files are not ours.
    """
    files = (file for file in folder.iterdir() if not file.name.startswith("."))
    # Several names may be links to one file.
    for file in {_identity(file): file for file in files}.values():
        with naming(file):
            _sync(file)
    _sync_names(folder)


def link(file: Path, other: Path) -> None:
    """Give a file another name: a link, or a copy if the file system has no links.

    It is on disk only after a call of `settle`.
    """
    with replacing(other, settled=False) as beside:
        try:
            os.link(file, beside)
        except OSError:
            shutil.copy(file, beside)


def _identity(file: Path) -> tuple[int, int]:
    """Return numbers that are equal for all links to a file."""
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
