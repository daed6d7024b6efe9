"""Settings and records as flat names and values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from numbers import Real
from typing import Any

from umbel.run.records import Record

LEFT_OUT = ("round", "missing", "refused", "measures")


def measures_of(record: Record) -> Iterator[tuple[str, float]]:
    """The known numbers of a round by name; absent clients are counted."""
    values: Mapping[str, Any] = {**vars(record), **record.measures}
    for name, value in values.items():
        if name not in LEFT_OUT and isinstance(value, Real):
            yield name, float(value)
    yield "missing", float(len(record.missing))
    yield "refused", float(len(record.refused))


def flat(table: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, object]]:
    """The settings of a table in tables, with dots in their names."""
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def with_lists(value: Any) -> Any:
    """A plain value with a list in place of each tuple within, as it is read from TOML."""
    if isinstance(value, Mapping):
        return {name: with_lists(item) for name, item in value.items()}
    return [with_lists(item) for item in value] if isinstance(value, list | tuple) else value


def same(one: object, other: object) -> bool:
    """Whether two values of a setting are equal; NaN, which is not equal to itself, is here."""
    return one == other or str(one) == str(other)
