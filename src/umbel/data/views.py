"""Views of data sets, with some labels merged or left out."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class View:
    """The new label for each label of another data set; -1: left out."""

    source: str
    names: tuple[int, ...]


CHARACTERS = string.digits + string.ascii_uppercase + string.ascii_lowercase
"""The 62 classes of EMNIST, in order."""

MERGED = string.digits + string.ascii_uppercase + "abdefghnqrt"
"""47 classes: upper and lower case of CIJKLMOPSUVWXYZ are merged (Lin et al. 2024, III-A.1)."""


def _merged(character: str) -> int:
    return MERGED.index(character if character in MERGED else character.upper())


VIEWS: Mapping[str, View] = {
    "emnist-merged": View("emnist", tuple(map(_merged, CHARACTERS))),
    "emnist-a-to-j": View("emnist", tuple(map("abcdefghij".find, CHARACTERS))),
}
"""Views by the names that scenarios use."""
