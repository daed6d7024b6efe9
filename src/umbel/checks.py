"""One way to refuse a bad value: name the field, show the value, say what was expected."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UsageError(ValueError):
    """Something that the user can put right; the message says what."""


class InUseError(UsageError):
    """Another process is running in the folder of a run."""


class QuorumError(RuntimeError):
    """Too few clients gave a usable reply to go on."""


class DivergedError(QuorumError):
    """Too few replies can be used because training diverged: the settings want changing."""


def check(holds: bool, field: str, value: object, expected: str) -> None:
    """Raise `UsageError` naming the field, its value and what was expected, unless it holds."""
    if not holds:
        raise UsageError(f"{field}: {value!r} is not {expected}")


def nearest(name: str, known: Iterable[str], otherwise: str = "") -> str:
    """A hint for a name that is not known; if none is like it, all names or what is said here."""
    close = difflib.get_close_matches(name, known, n=1)
    return f"did you mean {close[0]}?" if close else otherwise or f"known: {', '.join(known)}"
