"""Reading of `.npz` files that can't be trusted: everything is checked first."""

from __future__ import annotations

import re
import warnings
import zipfile
from collections.abc import Collection
from functools import lru_cache
from io import BytesIO
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError, check, check_memory
from umbel.files.reading import check_file, files_in

SPLIT = re.compile(r"(?<![a-z])(train|test|valid|val|validation)(?![a-z])")
"""A word for a split in the name of an array."""

WHAT = re.compile(r"(?<![a-z])(x|y|inputs?|images?|features?|data|targets?|labels?)(?![a-z])|^_*$")
"""A word for inputs or labels in the rest of such a name, or nothing."""

HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}
"""Functions that read the header of an array, by the version of its format."""


def partial_files(folder: Path) -> list[Path]:
    """The files of clients, `0.partial` and so on, of a save that has not ended."""
    return [file for file in files_in(folder, ".partial") if file.stem.isdecimal()]


def check_saved(folder: Path) -> None:
    """Raise `UsageError` for a folder that a save has not completed."""
    for file in partial_files(folder):
        advice = "empty the folder, and save again"
        raise UsageError(f"{folder}: holds {file.name} of a save that did not end; {advice}")


def client_files(folder: Path) -> list[Path]:
    """The `.npz` files of a folder, one per client.

    Raises `UsageError` if there is no such folder, or if it has none, or not yet all.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder}: there is no such folder")
    check_saved(folder)
    files = files_in(folder, ".npz")
    if not files:
        said = "it needs one for each client"
        if files_in(folder / "train", ".npz"):
            said += ", with x and y, and x_test and y_test, in place of folders train and test"
        raise UsageError(f"{folder}: holds no .npz files; {said}")
    return files


def read_arrays(file: Path, names: Collection[str]) -> dict[str, NDArray[Any]]:
    """The named arrays, as far as the file has them.

    At most the size that the archive claims is read, and it must fit into memory. Raises
    `UsageError` for any other file; NumPy's own message would advise unpickling an untrusted file.
    """
    check_file(file)
    try:
        with zipfile.ZipFile(file) as archive:
            there = set(archive.namelist())
            _check_splits(file, there, names)
            members = {n: archive.getinfo(f"{n}.npy") for n in names if f"{n}.npy" in there}
            needed = sum(member.file_size for member in members.values())
            check_memory(2 * needed, f"{file}: its arrays")
            return {name: _array(archive, member) for name, member in members.items()}
    except UsageError:
        raise
    except OSError as error:
        raise UsageError(f"{file}: can't be read: {error.strerror or 'damaged'}") from None
    except Exception:  # parsers raise any exception
        expected = "a .npz file of plain arrays, as numpy.savez writes them"
        raise UsageError(f"{file}: not {expected}") from None


def _check_splits(file: Path, there: Collection[str], names: Collection[str]) -> None:
    """Raise `UsageError` for an array of a split under a name that is not read."""
    for name in sorted({member.removesuffix(".npy") for member in there} - {*names}):
        if SPLIT.search(name.lower()) and WHAT.search(SPLIT.sub("", name.lower())):
            split = "validation" if "val" in name.lower() else "test"
            known = ("x", "y") if "train" in name.lower() else (f"x_{split}", f"y_{split}")
            expected = f"the name of an array that is read: call it {' or '.join(known)}"
            check(False, str(file), name, expected)


def _array(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    """Raises an `Exception` unless the data have the size that the header claims."""
    data = archive.read(member)
    # A header ends with a line feed, and NumPy takes none beyond 10,000 bytes.
    begin, shape, by_columns, kind = _header(data[: data.find(b"\n", 10, 10**4 + 16) + 1])
    size = prod(shape) * kind.itemsize
    if kind.hasobject or min(shape, default=0) < 0 or begin + size > len(data):
        raise ValueError("a header that can't be true")
    flat = np.frombuffer(data, dtype=kind, count=prod(shape), offset=begin)
    return flat.reshape(shape, order="F" if by_columns else "C")


@lru_cache(1024)  # most clients' arrays have the header of another client's
def _header(data: bytes) -> tuple[int, tuple[int, ...], bool, np.dtype[Any]]:
    """Return the length of a header, and the shape, order and type that it claims."""
    opened = BytesIO(data)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about headers of other NumPy versions
        shape, by_columns, kind = HEADERS[np.lib.format.read_magic(opened)](opened)
    return opened.tell(), shape, by_columns, kind
