"""A method and its wrapper share a table of settings, so their names must differ."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from umbel.algorithms.base import Algorithm
from umbel.checks import UsageError


def check_apart(wrapper: Algorithm[Any], method: Algorithm[Any]) -> None:
    """Raise `UsageError` if a method has a setting of the same name as one of its wrapper.

    The settings of both are in one table: one of the two would take the other's place.
    """
    own = {f.name for f in fields(wrapper)} - {"of"}
    while True:
        both = own & {f.name for f in fields(method)}
        if both:
            kind, around = type(method).__name__, type(wrapper).__name__
            how = f"rename it: {around} has a setting of this name, too"
            raise UsageError(f"{min(both)}: a setting of {kind}; {how}")
        # Only wrappers have `asked_by`: a method of a wrapper may itself be a wrapper.
        if not hasattr(method, "asked_by"):
            return
        method = method.of  # type: ignore[attr-defined]
