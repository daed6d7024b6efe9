"""Reading of LEAF's files: the examples of its users, and its own division of them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from umbel.checks import UsageError, check, check_memory
from umbel.data.arrays import Arrays
from umbel.files.reading import check_file, files_in

NUM_CLASSES = 62
SIDE = 28

TIMES = 10
"""Memory of numbers, as a multiple of their size in a file."""

DIVIDED = re.compile(r"(?:^|_)(train|test)(?:_\d+)?$")
"""The end of the names of files that LEAF has divided, such as all_data_0_keep_0_train_9."""

LETTERS = "\n !\"&'(),-.0123456789:;>?ABCDEFGHIJKLMNOPQRSTUVWXYZ[]abcdefghijklmnopqrstuvwxyz}"
"""The characters of LEAF's Shakespeare, in the order of its labels. Others count as the last."""

Users = Mapping[str, tuple[list[Any], list[Any]]]
"""The x and the y of each user, as they are in files."""


def leaf_files(folder: Path, split: str) -> list[Path]:
    """The files of LEAF in a folder that are of the split train or test, in order.

    LEAF writes `data/train/*.json` and `data/test/*.json`, whose names say so, too. Files that are
    not divided are of train.
    """
    for base in (folder, folder / "data"):
        if files := files_in(base / split, ".json"):
            return files
    found = {file: DIVIDED.search(file.stem) for file in files_in(folder, ".json")}
    return [file for file, said in found.items() if (said.group(1) if said else "train") == split]


def read_users(files: Sequence[Path]) -> dict[str, tuple[list[Any], list[Any]]]:
    """The examples of each user in these files. Raises `UsageError` for files of another form."""
    found: dict[str, tuple[list[Any], list[Any]]] = {}
    for file in files:
        check_file(file)
        check_memory(TIMES * file.stat().st_size, f"{file}: its users")
        try:
            content = json.loads(file.read_bytes())
            for user, count in zip(content["users"], content["num_samples"], strict=True):
                mine = content["user_data"][user]
                x, y = list(mine["x"]), list(mine["y"])
                if not len(x) == len(y) == count:
                    raise ValueError(f"{user} does not have {count} pairs of x and y")
                known = found.setdefault(str(user), ([], []))
                known[0].extend(x)
                known[1].extend(y)
        except (ValueError, LookupError, TypeError, RecursionError) as error:
            raise UsageError(f"{file}: {NO_LEAF}: {type(error).__name__}: {error}") from None
    return found


NO_LEAF = "not a file of users, num_samples and user_data, as LEAF writes it"


@dataclass(frozen=True)
class Leaf:
    """FEMNIST: of each writer a list x of images of 784 values in 0 to 1, and a list y.

    Values are kept in steps of 1/255, which is the precision of LEAF's values.
    """

    files: tuple[Path, ...]

    def __str__(self) -> str:
        return f"{len(self.files)} files of {self.files[0].parent}"

    def arrays(self, scratch: str) -> Arrays:  # noqa: ARG002
        """All examples, with their writers."""
        xs, ys, owners = [], [], []
        for file in self.files:
            for writer, (x, y) in read_users([file]).items():
                try:
                    pixels, labels = np.asarray(x, dtype=np.float64), np.asarray(y)
                    fine = pixels.shape == (len(x), SIDE**2) and labels.shape == (len(x),)
                    fine = fine and bool(((pixels >= 0) & (pixels <= 1)).all())
                    if not fine or not set(labels.tolist()) <= set(range(NUM_CLASSES)):
                        pairs = f"{len(x)} pairs of 784 values in 0 to 1 and a label"
                        raise ValueError(f"{writer} does not have {pairs}")
                    xs.append(np.rint(255 * pixels).astype(np.uint8).reshape(-1, 1, SIDE, SIDE))
                    ys.append(labels.astype(np.int64))
                except (ValueError, TypeError, ArithmeticError) as error:
                    what = "not a file of FEMNIST as LEAF writes it"
                    reason = f"{type(error).__name__}: {error}"
                    raise UsageError(f"{file}: {what}: {reason}") from None
                owners += [writer] * len(y)
        check(bool(owners), "source", "femnist", "a data set with examples")
        return Arrays(np.concatenate(xs), np.concatenate(ys), NUM_CLASSES, owners=np.array(owners))
