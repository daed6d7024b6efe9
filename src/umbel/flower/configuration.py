"""The settings that Flower passes on, of a run or of a node: each of the type that is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from umbel.checks import UsageError, check, shown
from umbel.settings import SCALARS

N = TypeVar("N", int, float)


def number_in(
    config: Mapping[str, object], name: str, kind: type[N], default: N | None = None
) -> N:
    """A number, which may be written as text. Raises `UsageError` where there is none."""
    value = config.get(name, default)
    try:
        return kind(str(value))
    except ValueError:
        raise UsageError(f"{name}: {shown(value)} is not {SCALARS[kind]}") from None


def truth_in(config: Mapping[str, object], name: str, default: bool) -> bool:
    """A truth value. Raises `UsageError` where it is none."""
    value = config.get(name, default)
    said = str(value).lower()
    check(said in ("true", "false"), name, value, "true or false")
    return said == "true"
