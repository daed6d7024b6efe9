"""One-line descriptions of values: types and shapes, never the values of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass
from decimal import Decimal
from typing import Any

from umbel.checks import printable

MOST_LISTED = 8
"""Longer lists of numbers or names are counted instead of shown."""


def in_short(self: Any) -> str:
    """The `repr` of a dataclass that holds tensors; tensors are shown by type and shape only.

    The values could reveal clients' examples or models, and would be far too long.
    """
    parts = [f"{f.name}={_short(getattr(self, f.name))}" for f in fields(self) if f.repr]
    return f"{type(self).__name__}({', '.join(parts)})"


def settings(value: object) -> str:
    """Return the name of a value's class, with the fields that differ from the defaults."""
    if not is_dataclass(value) or isinstance(value, type):
        return type(value).__name__
    changed = [f for f in fields(value) if f.init and _differs(f, getattr(value, f.name))]
    said = []
    for f in changed:
        inner = getattr(value, f.name)
        said.append(f"{f.name}={settings(inner) if is_dataclass(inner) else _short(inner)}")
    return f"{type(value).__name__}({', '.join(said)})" if said else type(value).__name__


def few(names: Sequence[str]) -> str:
    """The names in a row; if there are many, the first ones and how many more there are."""
    more = len(names) - MOST_LISTED
    return ", ".join(map(printable, names[:MOST_LISTED])) + (
        f" and {more:,} more" if more > 0 else ""
    )


def number_text(value: float | None, digits: int) -> str:
    """Format a number with this many digits after the point, a dash if it is unknown.

    What is rounded to zero has no sign.
    """
    return "-" if value is None else f"{value:z.{digits}f}"


SMALL = 0.01
"""Size below which numbers of any scale are shown with three digits."""


def is_small(value: float) -> bool:
    """Return True for a number, other than 0, of which digits after the point show little."""
    return 0 < abs(value) < SMALL


def scaled_text(value: float | None, digits: int) -> str:
    """A number of any scale, such as a loss: as `number_text`, and of a small one three digits."""
    if value is not None and is_small(value):
        return f"{value:.3g}"
    return number_text(value, digits)


def three_digits(value: float) -> str:
    """Three digits, or all before the point, and no powers of ten."""
    return f"{Decimal(f'{value:.3g}'):f}" if value < 1000 else f"{value:.0f}"


def in_a_row(names: Iterable[str]) -> str:
    """Names separated by commas, with quotes around a name that contains one."""
    return ", ".join(f'"{name}"' if "," in name else name for name in names)


def joined_by_and(names: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *some, last = names
    return f"{', '.join(some)} and {last}" if some else last


def _short(value: object) -> str:
    if hasattr(value, "dtype") and hasattr(value, "shape"):  # told without loading PyTorch
        return f"{str(value.dtype).removeprefix('torch.')} {tuple(value.shape)}"
    if value is None or isinstance(value, str | int | float):
        return repr(value)
    if isinstance(value, Mapping):
        shown = [f"{key!r}: {_short(value[key])}" for key in list(value)[:MOST_LISTED]]
        return "{" + ", ".join(shown + ["..."] * (len(value) > MOST_LISTED)) + "}"
    if isinstance(value, Sequence):
        plain = all(entry is None or isinstance(entry, str | int | float) for entry in value)
        return repr(value) if plain and len(value) <= MOST_LISTED else f"[{len(value):,} in all]"
    if is_dataclass(value) and not isinstance(value, type):
        return repr(value)
    return getattr(value, "__name__", type(value).__name__)


def _differs(f: Field[Any], value: object) -> bool:
    default = f.default if f.default_factory is MISSING else f.default_factory()
    try:
        return default is MISSING or bool(value != default)
    except (ValueError, RuntimeError):  # tensors are not equal or different as a whole
        return True


def counted(number: int, noun: str) -> str:
    """`1 client`, `1,200 clients`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def duration(seconds: float) -> str:
    """A time in minutes, or a short one in seconds."""
    return f"{seconds / 60:.0f} minutes" if seconds >= 90 else counted(round(seconds), "second")
