"""FEMNIST in the files that LEAF writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from umbel.checks import UsageError
from umbel.data.arrays import Arrays

NUM_CLASSES = 62
SIDE = 28


@dataclass(frozen=True)
class Leaf:
    """JSON files, each with some writers: `users`, `num_samples` and `user_data`.

    `user_data` has lists x, of 784 values in 0 to 1 each, and y of each writer. Values are kept
    to a 255th, which is all the precision that LEAF's have.
    """

    files: tuple[Path, ...]

    def arrays(self, scratch: str) -> Arrays:  # noqa: ARG002
        """All examples, with their writers."""
        x, y, owners = [], [], []
        for file in self.files:
            for writer, mine in self._read(file):
                pixels = np.asarray(mine["x"], dtype=np.float64).reshape(-1, 1, SIDE, SIDE)
                x.append(np.rint(255 * pixels).astype(np.uint8))
                y.append(np.asarray(mine["y"], dtype=np.int64))
                owners += [writer] * len(y[-1])
        return Arrays(np.concatenate(x), np.concatenate(y), NUM_CLASSES, owners=np.array(owners))

    def _read(self, file: Path) -> Sequence[tuple[str, Any]]:
        """Each writer in a file, with lists x and y of one length."""
        try:
            content = json.loads(file.read_bytes())
            writers = [(str(user), content["user_data"][user]) for user in content["users"]]
            for (user, mine), count in zip(writers, content["num_samples"], strict=True):
                shape, labels = np.shape(mine["x"]), np.asarray(mine["y"])
                fine = shape == (count, SIDE**2) and labels.shape == (count,)
                if not fine or not set(labels.tolist()) <= set(range(NUM_CLASSES)):
                    raise ValueError(
                        f"{user} does not have {count} pairs of 784 values and a label"
                    )
        except (ValueError, KeyError, TypeError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise UsageError(f"{file}: not a file of FEMNIST as LEAF writes it: {reason}") from None
        return writers
