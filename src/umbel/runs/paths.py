"""Put the path of a setting, such as `scenario.clients`, at the beginning of an error message."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from typing import Any

from umbel.checks import UsageError
from umbel.runs.wrapped import WRAPPERS

FIELD = re.compile(r"(\w+)[\w.\[\]]*(?: = [^:]*)?: ")
"""What stands before what is wrong: a field, and what is meant within it."""


@contextmanager
def under(path: str, settings: Any) -> Iterator[None]:
    """Put the path of these settings before a refusal that begins with a field of theirs."""
    try:
        yield
    except UsageError as error:
        named = FIELD.match(str(error))
        if named is None or named[1] not in _names(settings):
            raise
        raise type(error)(f"{path}.{error}") from None


def _names(settings: Any) -> set[str]:
    """The fields of settings; a wrapper and what it wraps share a table."""
    inner = _names(settings.of) if isinstance(settings, WRAPPERS) else set()
    return inner | {f.name for f in fields(settings)}
