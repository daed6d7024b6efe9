"""The sessions of a run: what ran, on what, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from umbel.client.kernel_choice import Precision
from umbel.files.atomic import write_text
from umbel.files.seals import json_text, json_value
from umbel.folder.environment import environment


@dataclass(frozen=True)
class SessionsFile:
    """The file `environment.json` of one run."""

    path: Path

    def read(self) -> list[dict[str, Any]]:
        """All of them; none while the first goes on. Raises `UsageError` for a damaged file."""
        how = "it is not needed: remove it"
        return json_value(self.path, _sessions, how) or []

    def note(self, began: datetime, seconds: float, precision: Precision) -> None:
        """Add one that ran here."""
        session = {"began": began.isoformat(timespec="seconds"), "seconds": round(seconds, 3)}
        session |= environment(precision)
        write_text(self.path, json_text([*self.read(), session]))


def _sessions(value: Any) -> list[dict[str, Any]]:
    """Raise `ValueError` for anything else."""
    if not all(datetime.fromisoformat(session["began"]) for session in value):
        raise ValueError("a session without its time")
    if not all(isinstance(session.get("versions", {}), dict) for session in value):
        raise ValueError("a session whose versions have no names")
    return list(value)
