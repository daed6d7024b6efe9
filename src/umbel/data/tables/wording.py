"""Phrases of messages about tables: settings as users write them, and lists of columns."""

from __future__ import annotations

import json
import shlex
import tomllib
from collections.abc import Iterable

LONGEST_LIST_CHARACTERS = 300
"""Characters of a list of columns in a message."""


def to_write(setting: str, value: object) -> str:
    """The line that gives a table's setting this value: in a file or in Python, and as `--set`."""
    return f"write {setting} = {_toml(value)} ({to_set(setting, value)})"


def to_set(setting: str, value: object) -> str:
    """The option that gives a table's setting this value on the command line."""
    plain = value if isinstance(value, str) and _is_bare(value) else _toml(value)
    return f"--set {shlex.quote(f'scenario.{setting}={plain}')}"


def listed(names: Iterable[str]) -> str:
    """Names in quotation marks, with the number of those for which there is no room."""
    found = ""
    quoted = [repr(name) for name in names]
    for number, name in enumerate(quoted):
        if number and len(found) + len(name) > LONGEST_LIST_CHARACTERS:
            return f"{found} and {len(quoted) - number:,} more"
        found += f", {name}" if found else name
    return found


def _toml(value: object) -> str:
    return json.dumps(list(value) if isinstance(value, tuple) else value, ensure_ascii=False)


def _is_bare(text: str) -> bool:
    """Whether `--set` takes a text without quotation marks for what it is."""
    try:
        tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text == text.strip()
    return False
