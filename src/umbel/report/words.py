"""Other people's words in figures, such as clients' names: no part is a formula, or hidden."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any

from umbel.checks import printable


def in_a_row(names: Iterable[str]) -> str:
    """Names that can be told apart: with commas, and quotes around a name that has one."""
    return ", ".join(f'"{name}"' if "," in name else name for name in names)


def in_figures(value: Any) -> Any:
    """A figure whose every text is drawn as it is: the library knows signs of its own."""
    if isinstance(value, str):
        text = printable(value, "\n").replace("$", r"\$")
        return f" {text}" if text.startswith("_") else text  # such a line has no place in a legend
    if isinstance(value, tuple):
        return tuple(map(in_figures, value))
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: in_figures(getattr(value, f.name)) for f in fields(value)})
    return value
