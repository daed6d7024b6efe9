"""User texts in figures, such as clients' names, without formulas or hidden characters."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from umbel.checks import printable


def in_a_row(names: Iterable[str]) -> str:
    """Names separated by commas, with quotes around a name that contains one."""
    return ", ".join(f'"{name}"' if "," in name else name for name in names)


def in_figures(value: Any) -> Any:
    """A figure with all texts drawn literally, without matplotlib's own markup."""
    if isinstance(value, str):
        text = printable(value, "\n").replace("$", r"\$")
        return f" {text}" if text.startswith("_") else text  # such a line has no place in a legend
    if isinstance(value, tuple):
        return tuple(map(in_figures, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: in_figures(getattr(value, f.name)) for f in fields(value)})
    return value
