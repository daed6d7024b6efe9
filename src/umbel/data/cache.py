"""The cache directory, in which decoded examples are saved as arrays."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import platformdirs

from umbel.checks import UsageError
from umbel.data.arrays import Arrays

CACHE_DIR_VARIABLE = "UMBEL_CACHE_DIR"

PARTIAL = ".partial-"
"""Part of the names of incomplete folders."""


def cache_directory() -> Path:
    """`UMBEL_CACHE_DIR`, or else the user's cache directory.

    Raises `UsageError` if the system knows no home directory of the user.
    """
    if given := os.environ.get(CACHE_DIR_VARIABLE):
        return Path(given)
    found = Path()
    with suppress(RuntimeError):  # HOME is not set, and the system does not know the user
        found = Path(platformdirs.user_cache_dir("umbel"))
    if found.is_absolute():  # former versions of platformdirs return ~ itself
        return found
    raise UsageError(
        "this user has no home directory in which decoded examples could be kept; set "
        f"{CACHE_DIR_VARIABLE} to a folder for them"
    )


@contextmanager
def naming_cache(folder: Path) -> Iterator[None]:
    """Say in errors of the system what sets the directory that can't be written to."""
    try:
        yield
    except OSError as error:
        # If the disk is full, NumPy reports how many bytes it wrote, but neither reason nor file.
        number = error.errno or errno.ENOSPC
        why = f"{os.strerror(number)}; {CACHE_DIR_VARIABLE} says where decoded examples are kept"
        raise OSError(number, why, str(folder)) from None


def cached(folder: Path) -> Arrays:
    """The arrays that `save` wrote."""
    owners, classes = folder / "owners.npy", folder / "classes.npy"
    return Arrays(
        np.load(folder / "x.npy", mmap_mode="r"),
        np.load(folder / "y.npy"),
        int(np.load(folder / "num_classes.npy")),
        owners=np.load(owners) if owners.is_file() else None,
        classes=tuple(np.load(classes).tolist()) if classes.is_file() else (),
    )


def save(arrays: Arrays, folder: Path) -> None:
    """Write to a temporary folder next to it, and rename that: so every folder is complete."""
    with naming_cache(folder.parent):
        beside = Path(tempfile.mkdtemp(prefix=f"{folder.name}{PARTIAL}", dir=folder.parent))
        try:
            np.save(beside / "x.npy", arrays.x)
            np.save(beside / "y.npy", arrays.y)
            np.save(beside / "num_classes.npy", arrays.num_classes)
            if arrays.owners is not None:
                np.save(beside / "owners.npy", arrays.owners)
            if arrays.classes:
                np.save(beside / "classes.npy", np.array(arrays.classes))
            beside.rename(folder)
        finally:
            shutil.rmtree(beside, ignore_errors=True)


def remove_partial(folder: Path) -> None:
    """Remove incomplete copies of this folder, left by processes that were killed."""
    for left in folder.parent.iterdir():
        if left.name.startswith(f"{folder.name}{PARTIAL}"):
            shutil.rmtree(left, ignore_errors=True)
