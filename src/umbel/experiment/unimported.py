"""Code outside umbel, which experiments name as "module:Name".

Commands that only show a run do not import it: a `Stranger` represents it, with its settings as
text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import new_class
from typing import Any

OURS = "umbel.runs.own:"
"""Begins the names, in the files of runs, of what stands for data and modules made in Python."""

IN_PYTHON, OWN_MODULE = f"{OURS}OwnData", f"{OURS}OwnModule"
"""The names of such a scenario and such a model."""


class Stranger:
    """Stands for a value that would have to be imported."""

    table: Mapping[str, Any]  # what the experiment says of it

    def __repr__(self) -> str:
        return f"{self.table!r}, not imported"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stranger) and self.table == other.table

    def __hash__(self) -> int:
        return hash(repr(self.table))


def stranger(table: Mapping[str, Any], kind: type) -> Any:
    """A value that passes for one of this kind as long as nothing is done with it."""
    made: Any = new_class(str(table["name"]), (Stranger, kind))
    made.__abstractmethods__ = frozenset()
    value = object.__new__(made)
    object.__setattr__(value, "table", dict(table))
    return value


def strangers_in(value: Any, within: bool = False) -> Iterator[str]:
    """Return the third-party names that an experiment, as a table, would import."""
    if isinstance(value, Mapping):
        name, source = str(value.get("name", "")), value.get("source", "")
        if within and ":" in name and not name.startswith(OURS):
            yield name
        if name == OWN_MODULE and source:
            yield str(source)
        metrics = value.get("metrics")
        if not within and isinstance(metrics, list):
            yield from (str(own) for own in metrics if ":" in str(own))
        value = [*value.values()]
    if isinstance(value, list):
        for member in value:
            yield from strangers_in(member, within=True)
