"""Columns that settings name, looked for in a table's header."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from umbel.checks import UsageError, closest
from umbel.data.tables.headers import header_of, misread
from umbel.data.tables.wording import listed, to_set

ASKED = {
    "client": "which column says which client a row is of",
    "target": "which column is to be predicted",
}

USUAL = {"client": None, "target": "target"}
"""Values of settings that nobody has set."""


def check_named(
    file: Path,
    header: Sequence[str],
    named: Mapping[str, Any],
    unknown: str | None,
    separator: str,
    others: Sequence[Path] = (),
) -> None:
    """Raise `UsageError`, with the columns there are and what to write, for a lacking column.

    `named` are the names of columns by setting: one, several or None. `unknown` is a setting that
    has to name a column and does not. `others` are the other files of a folder.
    """
    wrong, options = [], []
    for setting, value in named.items():
        one = value is None or isinstance(value, str)
        names = _names(value)
        lacking = [name for name in names if name not in header]
        if setting == unknown or (lacking and setting in ASKED and value == USUAL[setting]):
            wrong.append(ASKED[setting])
            options.append(f"--set scenario.{setting}=COLUMN")
        elif lacking:
            near = {name: closest(name, header) for name in lacking}
            wrong += [f"lacks the column {name!r}{_hint(near[name])}" for name in lacking]
            right = ["COLUMN" if n in near and near[n] is None else near.get(n) or n for n in names]
            bare = one and right == ["COLUMN"]
            plain = f"--set scenario.{setting}=COLUMN"
            options.append(plain if bare else to_set(setting, right[0] if one else right))
    if not wrong:
        return
    if advice := misread(file, separator, others) if file.suffix.lower() == ".csv" else None:
        raise UsageError(f"{file}: {advice}")
    headers = {other: header_of(other, separator) for other in others}
    for name in (name for value in named.values() for name in _names(value) if name not in header):
        having = [other for other in others if name in headers[other]]
        if 2 * len(having) > len(others):  # the file is at fault, not the setting
            own = closest(name, set(header) - set(headers[having[0]]))
            how = f"rename its {own!r}" if own else "add it"
            raise UsageError(f"{file}: lacks the column {name!r}, which {having[0]} has; {how}")
    said = f"{file}: {'; '.join(wrong)}; columns: {listed(header)}"
    if unknown is not None:
        said += " (clients that have a column each must first be brought below one another)"
    raise UsageError(f"{said}; write {' '.join(options)}")


def _names(value: Any) -> list[str]:
    """The columns that a setting names."""
    return [] if value is None else [value] if isinstance(value, str) else list(value)


def _hint(near: str | None) -> str:
    return f", did you mean {near!r}?" if near else ""
