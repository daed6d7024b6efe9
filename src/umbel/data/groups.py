"""Conversion of planted groups to numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from umbel.checks import check
from umbel.data.objects import is_missing


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
