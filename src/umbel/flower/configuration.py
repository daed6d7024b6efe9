"""The settings that Flower passes on, of a run or of a node: each of the type that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import TypeVar

from umbel.checks import UsageError, check, shown
from umbel.settings import SCALARS

N = TypeVar("N", int, float)


def number_in(
    config: Mapping[str, object], name: str, kind: type[N], default: N | None = None
) -> N:
    """A number, which may be written as text. Raises `UsageError` where there is none.

    1e6 is a whole number, too.
    """
    value = config.get(name, default)
    text = str(value)
    with suppress(ValueError):
        return kind(text)
    with suppress(ValueError):
        if float(text).is_integer():
            return kind(float(text))
    raise UsageError(f"{name}: {shown(value)} is not {SCALARS[kind]}")


def truth_in(config: Mapping[str, object], name: str, default: bool) -> bool:
    """A truth value. Raises `UsageError` where it is none."""
    value = config.get(name, default)
    said = str(value).lower()
    check(said in ("true", "false"), name, value, "true or false")
    return said == "true"
