"""One way to refuse a bad value: name the field, show the value, say what was expected."""

from __future__ import annotations


class UsageError(ValueError):
    """Something that the user can put right; the message says what."""


class InUseError(UsageError):
    """Another process is running in the folder of a run."""


class QuorumError(RuntimeError):
    """Too few clients gave a usable reply to go on."""


def check(holds: bool, field: str, value: object, expected: str) -> None:
    """Raise `UsageError` naming the field, its value and what was expected, unless it holds."""
    if not holds:
        raise UsageError(f"{field}: {value!r} is not {expected}")
