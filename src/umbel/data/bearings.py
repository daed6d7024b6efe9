"""Vibration of faulty bearings: the drive end recordings of Case Western Reserve University."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError, check
from umbel.data.arrays import Arrays
from umbel.data.npz import read_arrays
from umbel.data.sources import DATA_DIR_VARIABLE, Sources

FOLDER, FILE = "cwru_bearing", "drive_end_12k.npz"

RECORDINGS: Mapping[str, tuple[int, int]] = {
    "B_7": (118, 119),
    "B_14": (185, 186),
    "B_21": (222, 223),
    "B_28": (48, 49),
    "IR_7": (105, 106),
    "IR_14": (169, 170),
    "IR_21": (209, 210),
    "IR_28": (56, 57),
    "ORat6_7": (130, 131),
    "ORat6_14": (197, 198),
    "ORat6_21": (234, 235),
    "ORat12_21": (258, 259),
}
"""The 12 conditions in the order of their labels, and the numbers of their recordings.

A condition is the faulty part (ball, inner race, outer race at 6 or 12 o'clock) and the fault's
size in thousandths of an inch. The first recording is at 1797 rpm without load, the second at 1772
rpm with 1 hp, both at 12 kHz. A number is part of the name of the variable: X105_DE_time.
"""

SPEEDS = (1797, 1772)  # rpm


def windows(sources: Sources, length: int) -> Arrays:
    """All recordings cut into windows (n, 1, length) that do not overlap, labelled by condition.

    They are read from `cwru_bearing/drive_end_12k.npz` in the data directory, with an array
    `B_7__1797rpm` and so on, or from the original `.mat` files in that folder, at any depth and
    under any names. Raises `UsageError` if some are missing.
    """
    if sources.data_dir is None:
        raise UsageError(
            f"source: bearing recordings are read from the folder {FOLDER} of a data directory; "
            f"set {DATA_DIR_VARIABLE} or --data-dir"
        )
    folder = sources.data_dir / FOLDER
    packed = folder / FILE
    signals = _of_npz(packed) if packed.is_file() else _of_mat(folder)
    x, y = [], []
    for label, condition in enumerate(RECORDINGS):
        for speed in SPEEDS:
            signal = signals[f"{condition}__{speed}rpm"]
            count = len(signal) // length
            x.append(signal[: count * length].reshape(count, 1, length))
            y.append(np.full(count, label))
    return Arrays(np.concatenate(x), np.concatenate(y), len(RECORDINGS))


def _names() -> dict[int, str]:
    """Number of a recording -> its name in the packed file."""
    return {
        number: f"{condition}__{speed}rpm"
        for condition, numbers in RECORDINGS.items()
        for number, speed in zip(numbers, SPEEDS, strict=True)
    }


def _of_npz(file: Path) -> dict[str, NDArray[np.float32]]:
    names = set(_names().values())
    arrays = read_arrays(file, sorted(names))
    missing = sorted(names - set(arrays))
    if missing:
        raise UsageError(f"{file}: lacks {', '.join(missing)}")
    for name, array in arrays.items():
        check(array.dtype.kind in "iuf", f"{file}: {name}", str(array.dtype), "a type of numbers")
    return {name: array.astype(np.float32).ravel() for name, array in arrays.items()}


def _of_mat(folder: Path) -> dict[str, NDArray[np.float32]]:
    from scipy.io import loadmat  # slow to import

    names, signals = _names(), {}
    for file in sorted(folder.rglob("*.mat")):
        try:
            variables: dict[str, Any] = loadmat(file)
        except Exception as error:  # scipy's parsers raise any exception
            raise UsageError(f"{file}: not a MATLAB file: {error}") from None
        for key, values in variables.items():
            number = re.fullmatch(r"X(\d+)_DE_time", key)
            if number and int(number[1]) in names:
                signals[names[int(number[1])]] = np.asarray(values, dtype=np.float32).ravel()
    missing = [f"X{n:03}_DE_time" for n, name in names.items() if name not in signals]
    if missing:
        raise UsageError(
            f"source: {folder} has neither the file {FILE} nor all of the original .mat files "
            f"(12k drive end): missing are the variables {', '.join(missing)}"
        )
    return signals
