"""Read fields of messages; each is checked for its type and its bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from flwr.app import ConfigRecord, RecordDict

from umbel.checks import is_plain
from umbel.flower.errors import RefusedError, abbreviated

VERSION = 2
"""The version of the messages, which both sides must speak."""

MAX_ITEMS = 10**5  # largest length of a list, which has an item for each client of a node
MAX_TEXT = 2**16  # characters
MAX_NAME = 200


def config(content: RecordDict, name: str) -> Mapping[str, Any]:
    """Read the record of this name."""
    found = content.get(name)
    if not isinstance(found, ConfigRecord):
        raise RefusedError(f"{name}: missing")
    return found


def versioned(content: RecordDict, name: str) -> Mapping[str, Any]:
    """Read the record of this name, which must be of this version."""
    found = config(content, name)
    version = found.get("version")
    if type(version) is not int or version != VERSION:
        said = f"messages of version {abbreviated(version)}, but this umbel uses {VERSION}"
        raise RefusedError(f"{said}: server and nodes need the same release of umbel")
    return found


def text(config: Mapping[str, Any], name: str) -> str:
    """Read a string."""
    value = config.get(name)
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise RefusedError(f"{name}: {abbreviated(value)} is not a string, or is too long")
    return value


def number(config: Mapping[str, Any], name: str, low: int, high: int) -> int:
    """Read a whole number."""
    value = config.get(name)
    if type(value) is not int or not low <= value <= high:
        raise RefusedError(
            f"{name}: {abbreviated(value)} is not a whole number from {low} to {high}"
        )
    return value


def numbers(config: Mapping[str, Any], name: str, low: int, high: int) -> list[int]:
    """Read a list of whole numbers."""
    values: list[int] = _items(config, name, int)
    if values and not low <= min(values) <= max(values) <= high:
        raise RefusedError(f"{name}: {abbreviated(values)} are not all from {low} to {high}")
    return values


def texts(config: Mapping[str, Any], name: str) -> list[str]:
    """Read a list of names."""
    values: list[str] = _items(config, name, str)
    check_names(name, values, MAX_ITEMS)
    return values


def check_names(field: str, names: Sequence[str], most: int) -> None:
    """Raise `RefusedError` for too many names, or names that can't be shown in one line."""
    if len(names) > most:
        raise RefusedError(f"{field}: {len(names)} names, more than the {most} allowed")
    for name in names:
        if not 0 < len(name) <= MAX_NAME or not is_plain(name):
            expected = f"a name: 1 to {MAX_NAME} characters of one line"
            raise RefusedError(f"{field}: {abbreviated(name)} is not {expected}")


def _items(config: Mapping[str, Any], name: str, kind: type[Any]) -> list[Any]:
    value = config.get(name)
    if not isinstance(value, list) or len(value) > MAX_ITEMS:
        raise RefusedError(f"{name}: {abbreviated(value)} is not a list, or is too long")
    if any(type(item) is not kind for item in value):
        raise RefusedError(f"{name}: {abbreviated(value)} is not a list of {kind.__name__}")
    return value
