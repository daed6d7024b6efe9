"""Errors in a table of settings, as sentences that name the key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from cattrs.errors import (
    AttributeValidationNote,
    BaseValidationError,
    ForbiddenExtraKeysError,
    IterableValidationNote,
)

from umbel.checks import UsageError, closest, nearest
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.setting_paths import owners, path_of_setting
from umbel.help.synonyms import synonym
from umbel.run.wrappers import goes_with, known_keys
from umbel.settings import NotATableError
from umbel.summary import few


@dataclass(frozen=True)
class Problem:
    """An error in one key."""

    said: str  # a sentence with the path of the key
    unknown: str | None = None  # the path of a key that is not known
    closest: str | None = None  # the known key that is most similar to it


class TableError(UsageError):
    """Raised for a table of settings with errors; `problems` lists them."""

    def __init__(self, message: str, problems: Sequence[Problem] = ()) -> None:
        super().__init__(message)
        self.problems = tuple(problems)


def problems(error: BaseValidationError, path: str = "") -> Iterator[Problem]:
    """The errors of a table, key by key."""
    for inner in error.exceptions:
        where = _joined(path, _place(inner))
        if isinstance(inner, BaseValidationError):
            yield from problems(inner, where)
        elif isinstance(inner, ForbiddenExtraKeysError):
            for key in sorted(inner.extra_fields):
                yield _unknown(key, _joined(where, key), inner.cl)
        elif isinstance(inner, KeyError):
            yield Problem(f"{where}: missing")
        elif isinstance(inner, UsageError):  # its message starts with the name of a field
            yield Problem(_joined(where, str(inner)))
        elif isinstance(inner, NotATableError):
            meant = path_of_setting(f"{where}.{inner.word}") or ""
            by_name = path_of_setting(where) or ""
            path = meant if meant.startswith(f"{where}.") else by_name
            yield Problem(f"{where}: {inner}{f'; set {path}' if path > where else ''}")
        elif isinstance(inner, TypeError):
            yield Problem(f"{where}: not of the right form: {inner}")
        else:
            yield Problem(f"{where}: {inner}")


def _unknown(key: str, path: str, kind: type) -> Problem:
    """The problem of a key that the table of a dataclass does not have."""
    if beside := goes_with(key, kind):
        return Problem(f"{path}: unknown key; {beside}", path)
    known = known_keys(kind)
    similar, hint = closest(key, known), nearest(key, known)
    meant = None if synonym(key, known) else path_of_setting(path)
    alone = (
        "." not in path and kind is not ExperimentSettings
    )  # a table by itself, as in `scenario(...)`
    if meant is not None and not (alone and similar):
        names = owners(path) if meant == path else ()
        hint = f"a setting of {few(names)}" if names else f"did you mean {meant}?"
    return Problem(f"{path}: unknown key; {hint}", path, similar)


def _place(error: Exception) -> str:
    for note in getattr(error, "__notes__", ()):
        if isinstance(note, AttributeValidationNote):
            return note.name
        if isinstance(note, IterableValidationNote):
            return f"[{note.index}]"
    return ""


def _joined(path: str, name: str) -> str:
    return f"{path}{name}" if not path or not name or name[0] == "[" else f"{path}.{name}"
