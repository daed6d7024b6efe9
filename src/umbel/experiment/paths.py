"""Put the path of a setting, such as `scenario.clients`, at the beginning of an error message."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import fields
from typing import Any

from umbel.checks import within
from umbel.run.wrappers import WRAPPERS


def under(path: str, settings: Any) -> AbstractContextManager[None]:
    """Put the path of these settings before a refusal that begins with a field of theirs."""
    return within(path, _names(settings))


def _names(settings: Any) -> set[str]:
    """The fields of settings; a wrapper and what it wraps share a table."""
    inner = _names(settings.of) if isinstance(settings, WRAPPERS) else set()
    return inner | {f.name for f in fields(settings)}
