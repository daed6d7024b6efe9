"""Reading of FEMNIST from LEAF's files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError, check, check_memory
from umbel.data.arrays import Arrays
from umbel.data.files import check_file

NUM_CLASSES = 62
SIDE = 28

TIMES = 10
"""Memory of numbers, as a multiple of their size in a file."""


@dataclass(frozen=True)
class Leaf:
    """JSON files with the keys `users`, `num_samples` and `user_data`, for some writers each.

    `user_data` has, for each writer, a list x of images of 784 values in 0 to 1, and a list y.
    Values are kept in steps of 1/255, which is the precision of LEAF's values.
    """

    files: tuple[Path, ...]

    def __str__(self) -> str:
        return f"{len(self.files)} files of {self.files[0].parent}"

    def arrays(self, scratch: str) -> Arrays:  # noqa: ARG002
        """All examples, with their writers."""
        x, y, owners = [], [], []
        for file in self.files:
            check_file(file)
            check_memory(TIMES * file.stat().st_size, f"{file}: its writers")
            try:
                for writer, pixels, labels in _writers(json.loads(file.read_bytes())):
                    x.append(np.rint(255 * pixels).astype(np.uint8).reshape(-1, 1, SIDE, SIDE))
                    y.append(labels)
                    owners += [writer] * len(labels)
            except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
                reason = f"{type(error).__name__}: {error}"
                what = "not a file of FEMNIST as LEAF writes it"
                raise UsageError(f"{file}: {what}: {reason}") from None
        check(bool(owners), "source", "femnist", "a data set with examples")
        return Arrays(np.concatenate(x), np.concatenate(y), NUM_CLASSES, owners=np.array(owners))


def _writers(content: Any) -> Iterator[tuple[str, NDArray[np.float64], NDArray[np.int64]]]:
    """Each writer in a file, with x (n, 784) and y (n,). Raises `ValueError` and others."""
    for user, count in zip(content["users"], content["num_samples"], strict=True):
        mine = content["user_data"][user]
        pixels, labels = np.asarray(mine["x"], dtype=np.float64), np.asarray(mine["y"])
        fine = pixels.shape == (count, SIDE**2) and labels.shape == (count,)
        fine = fine and bool(((pixels >= 0) & (pixels <= 1)).all())
        if not fine or not set(labels.tolist()) <= set(range(NUM_CLASSES)):
            raise ValueError(
                f"{user} does not have {count} pairs of 784 values in 0 to 1 and a label"
            )
        yield str(user), pixels, labels.astype(np.int64)
