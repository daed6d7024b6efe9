"""Choices that a paper leaves open, combined by name on the command line."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TypeVar

from umbel.checks import UsageError

T = TypeVar("T")


def changed(usual: T, choice: str, choices: Mapping[str, Callable[[T], T]]) -> T:
    """Apply choices such as "disjoint+glorot" to the usual setting, from left to right.

    Raises `UsageError` for a name that is not known.
    """
    names = choice.split("+")
    unknown = [name for name in names if name not in choices]
    if unknown:
        raise UsageError(f"choice: {unknown[0]!r} is not one of {', '.join(choices)}")
    return reduce(lambda so_far, name: choices[name](so_far), names, usual)
