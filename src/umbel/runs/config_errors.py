"""What is wrong with a table of settings, in sentences that name the key."""

from __future__ import annotations

from collections.abc import Iterator

from cattrs.errors import (
    AttributeValidationNote,
    BaseValidationError,
    ForbiddenExtraKeysError,
    IterableValidationNote,
)

from umbel.checks import UsageError
from umbel.runs.wrapped import hint


def problems(error: BaseValidationError, path: str = "") -> Iterator[str]:
    """What is wrong, one sentence each, with the path of the key."""
    for inner in error.exceptions:
        where = _joined(path, _place(inner))
        if isinstance(inner, BaseValidationError):
            yield from problems(inner, where)
        elif isinstance(inner, ForbiddenExtraKeysError):
            for key in sorted(inner.extra_fields):
                yield f"{_joined(where, key)}: unknown key; {hint(key, inner.cl)}"
        elif isinstance(inner, KeyError):
            yield f"{where}: missing"
        elif isinstance(inner, UsageError):  # its message starts with the name of a field
            yield _joined(where, str(inner))
        elif isinstance(inner, TypeError):
            yield f"{where}: not of the right form: {inner}"
        else:
            yield f"{where}: {inner}"


def _place(error: Exception) -> str:
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, AttributeValidationNote):
            return note.name
        if isinstance(note, IterableValidationNote):
            return f"[{note.index}]"
    return ""


def _joined(path: str, name: str) -> str:
    return f"{path}{name}" if not path or not name or name[0] == "[" else f"{path}.{name}"
