"""Names that data sets give their splits, as against names of clients."""

from __future__ import annotations

import re
from collections.abc import Sequence

from umbel.checks import UsageError
from umbel.summary import few

SPLIT = re.compile(r"(train|test|valid|val|dev|eval)(?![a-z])|(training|testing|validation)", re.I)
"""The beginning of names that data sets give their splits, such as test_b."""

WORDS = {
    **dict.fromkeys(("train", "training"), "train"),
    **dict.fromkeys(("validation", "valid", "val", "dev"), "validation"),
    **dict.fromkeys(("test", "testing"), "test"),
}
"""Words for the splits of a client -> the names that they have here."""


def split_named(word: object) -> str | None:
    """The split that a word stands for, whatever its case: train, validation or test."""
    return WORDS.get(str(word).strip().lower())


def check_no_splits(names: Sequence[str]) -> None:
    """Raise `UsageError` if these names are those of splits, and not of clients."""
    training = [name.lower().startswith("train") for name in names]
    if all(map(SPLIT.match, names)) and any(training) and not all(training):
        raise UsageError(
            f"train: {few(names)} are splits of one data set, and no clients: give an entry for "
            "each client, and all clients' test examples as test=; in files, each client's as "
            "x_test and y_test, or rows of a table with a column that says train or test"
        )
