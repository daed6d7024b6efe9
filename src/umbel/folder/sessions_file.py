"""The sessions of a run: versions, machine and duration of each."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch

from umbel.client.kernel_choice import Precision
from umbel.engines.precision import bf16_units
from umbel.files.atomic import write_text
from umbel.files.seals import json_text, json_value
from umbel.version import versions


@dataclass(frozen=True)
class SessionsFile:
    """The file `environment.json` of one run."""

    path: Path

    def read(self) -> list[dict[str, Any]]:
        """Read all sessions that have ended. Raises `UsageError` for a damaged file."""
        how = "it is not needed: remove it"
        return json_value(self.path, _sessions, how) or []

    def note(self, began: datetime, seconds: float, precision: Precision) -> None:
        """Add a session that ran in this process."""
        session = {"began": began.isoformat(timespec="seconds"), "seconds": round(seconds, 3)}
        session |= environment(precision)
        write_text(self.path, json_text([*self.read(), session]))


def _sessions(value: Any) -> list[dict[str, Any]]:
    """Check a list of sessions. Raises `ValueError` for anything else."""
    if not all(datetime.fromisoformat(session["began"]) for session in value):
        raise ValueError("a session without its time")
    if not all(isinstance(session.get("versions", {}), dict) for session in value):
        raise ValueError("a session whose versions have no names")
    return list(value)


PACKAGES = ("numpy", "scipy", "scikit-learn", "safetensors")


def environment(precision: Precision = "full") -> dict[str, Any]:
    """Versions and machine; on request also the processor's support for bfloat16 products."""
    units = {"bf16_units": bf16_units()} if precision == "bf16" else {}
    return units | {
        "versions": versions() | {name: importlib.metadata.version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "host": platform.node(),
        "processors": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }
