"""Arrays of Python objects, which come from tables with words or gaps, and ragged sequences."""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Integral, Real
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from umbel.checks import LARGEST, UsageError, check

PAD = (
    "pad sequences to one length, as torch.nn.utils.rnn.pad_sequence(x, batch_first=True) does, "
    "and mark labels of the padding by -100"
)


def numbers_of(array: NDArray[Any], what: str, advice: str) -> NDArray[Any]:
    """The numbers of an array of objects, as integers if all are integers.

    Raises `UsageError` for any other object, with its position, but without its value.
    """
    if array.ndim == 0:
        refuse(what, type(array.item()).__name__, advice)
    if array.size and all(map(_is_sequence, array.flat)):
        check_gaps(list(array.flat), what)
        check_even([np.shape(entry) for entry in array.flat], what)
        inner = np.stack([np.asarray(entry) for entry in array.flat])
        return numbers_of(inner, what, advice) if inner.dtype == object else inner
    for place, entry in zip(np.ndindex(array.shape), array.flat, strict=True):
        if isinstance(entry, Real | np.bool_) and entry == entry:
            continue
        column = f", column {place[1]}" if array.ndim == 2 else ""
        if is_missing(entry):
            refuse_row(f"{what}{column}", place[0], "missing")
        refuse(f"{what}{column}, row {place[0]}", type(entry).__name__, advice)
    whole = array.size and all(isinstance(entry, Integral | np.bool_) for entry in array.flat)
    if whole and not all(-LARGEST <= entry <= LARGEST for entry in array.flat):
        refuse(what, "whole numbers beyond 2^63 - 1", "")
    try:
        return array.astype(np.int64 if whole else np.float64)
    except OverflowError:
        raise UsageError(f"{what}: a number is beyond double precision") from None


def check_gaps(values: object, what: str) -> None:
    """Raise `UsageError` if values are masked, in an array or in a list of arrays.

    NumPy makes plain arrays of lists, with the values that the masks hide.
    """
    kind = type(values).__name__
    fine = not _has_gaps(values)
    check(fine, what, kind, "without gaps: fill them in, or leave those examples out")


def _has_gaps(values: object) -> bool:
    if isinstance(values, list | tuple):
        kinds = set(map(type, values))  # numbers are passed over: there may be millions
        plain = all(issubclass(kind, float | int | np.generic) for kind in kinds)
        return not plain and any(map(_has_gaps, values))
    return bool(np.ma.is_masked(values))


def check_even(shapes: Sequence[tuple[int, ...]], what: str) -> None:
    """Raise `UsageError` unless the examples have one shape."""
    different = sorted(set(shapes))
    if len(different) > 1:
        few = " and ".join(map(str, different[:2])) + (" and others" if len(different) > 2 else "")
        raise UsageError(f"{what}: examples have shapes {few}, but all must have the same; {PAD}")


def refuse(what: str, kind: str, advice: str) -> NoReturn:
    """Raise `UsageError` for a wrong type, with advice for words and dates."""
    words = kind.lstrip("<>|=").startswith(("U", "S", "str", "bytes", "category", "date", "time"))
    raise UsageError(f"{what}: {kind!r} is not a type of numbers{f'; {advice}' if words else ''}")


def refuse_row(what: str, row: int, fault: str) -> NoReturn:
    """Raise `UsageError` with the row of a number that can't be used."""
    raise UsageError(f"{what}: row {row} is {fault}; fill it in, or leave that example out")


def _is_sequence(entry: object) -> bool:
    return hasattr(entry, "__len__") and not isinstance(entry, str | bytes)


def is_missing(entry: object) -> bool:
    """Whether this is None, NaN, or a missing value of pandas."""
    if entry is None or type(entry).__name__ in ("NAType", "NaTType"):
        return True  # comes first, since NA == NA is not a bool in pandas
    try:
        return bool(entry != entry)
    except (RuntimeError, TypeError, ValueError):  # a tensor or an array of several numbers
        return False
