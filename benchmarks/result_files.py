"""Files that commands add their results to, looked at before anything is timed."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any


def check_folder(file: Path | None) -> None:
    """Raise `SystemExit` if the file's folder is not there."""
    if file is not None and not file.parent.is_dir():
        raise SystemExit(f"{file}: there is no folder {file.parent}")


def earlier(
    file: Path | None, about: Mapping[str, object], tables: Collection[str]
) -> dict[str, Any]:
    """The results in the file, to be added to; empty without a file.

    Raises `SystemExit` if its folder is not there, if it has none of these tables, or if it is
    about something else, such as another machine.
    """
    check_folder(file)
    if file is None or not file.exists():
        return {}
    before: dict[str, Any] = json.loads(file.read_text())
    if not any(table in before for table in tables):
        raise SystemExit(f"{file}: has the results of another benchmark")
    for key, value in about.items():
        if before.get(key, value) != value:
            raise SystemExit(f"{file}: from another {key}: {before[key]}")
    return before
