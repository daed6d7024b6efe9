"""Planted groups in a file, and their conversion to numbers."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from umbel.checks import check
from umbel.data.attributes import OWNER, by_client
from umbel.data.objects import is_missing
from umbel.files.reading import read_text

HEADER = [OWNER, "group"]


def read_groups(file: Path, names: list[str], alone: bool = False) -> Sequence[int | str] | None:
    """The groups of these clients as they are in the file, or None without a file.

    With `alone`, words become numbers that do not depend on the file's other words. Raises
    `UsageError` for a file that does not give one group for each client.
    """
    if not file.exists():
        return None
    lines = [[part.strip() for part in line.split(",")] for line in read_text(file).splitlines()]
    if lines and lines[0] == HEADER and OWNER not in names:
        lines[0] = []
    found = by_client(file, enumerate(lines, start=1), names, 2, "of the form client,group")
    words = [word for (word,) in found]
    for name, word in zip(names, words, strict=True):
        check(bool(word), str(file), name, "a client and its group")
    if alone:
        return [int(w) if is_number(w) else zlib.crc32(w.encode()) % 2**31 for w in words]
    return list(map(int, words)) if all(map(is_number, words)) else words


def is_number(word: str) -> bool:
    """Whether a group's name in a file is a whole number, of which 01 and 1 are not the same."""
    digits = word.removeprefix("-")
    decimal = digits.isdecimal() and digits.isascii() and len(digits) < 10
    return decimal and str(int(word)) == word  # 1 and 01 are two groups


def numbers_of(groups: Sequence[int | str], names: Sequence[str]) -> NDArray[np.int64]:
    """Numbers are kept, words are numbered in sorted order. Raises `UsageError` for a gap."""
    for group, name in zip(groups, names, strict=True):
        single = isinstance(group, str) or np.ndim(group) == 0
        check(
            single, f"groups: client {name}", type(group).__name__, "one group: a number or a word"
        )
        known = not is_missing(group) and str(group).strip() != ""
        expected = "the group of a client; leave groups out unless all are known"
        check(known, f"groups: client {name}", group, expected)
    numbers = np.asarray(groups)
    if numbers.dtype.kind not in "iu":
        numbers = np.unique(numbers.astype(str), return_inverse=True)[1]
    return numbers.astype(np.int64)
