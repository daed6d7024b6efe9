"""Settings of a file that are dropped with their table, as `--set` gives the table another name."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from functools import reduce
from pathlib import Path
from typing import Any

from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.layers import (
    INSTEAD,
    load_table,
    merged,
    path_of,
    says,
    tables_of,
)
from umbel.experiment.toml_file import plain
from umbel.run.wrappers import WRAPPERS, known_keys

logger = logging.getLogger(__name__)


def left_out(file: Path, settings: Sequence[str], experiment: ExperimentSettings) -> Iterator[str]:
    """A sentence for each table whose new kind has settings of the file as well, by defaults.

    `experiment` is what the file and these settings give.
    """
    places = [path.split(".")[:-1] for path in map(path_of, settings) if path.endswith(".name")]
    if not places:
        return
    nothing: Mapping[str, Any] = {}
    base, given = load_table(file), reduce(merged, tables_of(settings), nothing)
    now = plain(experiment)
    for place in places:
        kind = reduce(_part, place, experiment)
        while isinstance(kind, WRAPPERS):
            kind = kind.of
        below, over, after = (_at(table, place) for table in (base, given, now))
        yield from _of(".".join(place), below, over, after, kind)


def _of(path: str, below: Any, given: Any, now: Any, kind: Any) -> Iterator[str]:
    if not isinstance(below, Mapping) or below.get("name", given["name"]) == given["name"]:
        return
    lost = [
        names
        for names in _paths(below)
        if not says(given, names) and not _instead(names, given)
        if _has(kind, names) and _at(now, names) != _at(below, names)
    ]
    if lost:
        said = ", ".join(f"{path}.{'.'.join(names)}" for names in lost)
        yield (
            f"{path}.name={given['name']}: settings of {below['name']} are left out: {said}; "
            f"give those that hold here, too, as by --set {path}.{'.'.join(lost[0])}=..."
        )


def tell(file: Path, lines: Iterable[str]) -> None:
    """Warn of each sentence once."""
    for line in dict.fromkeys(lines):
        logger.warning("%s: %s", file.name, line)


def _paths(table: Mapping[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The settings of a table other than its name, and those in its tables."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _paths(value, (*above, key))
        elif above or key != "name":
            yield (*above, key)


def _has(kind: Any, names: Sequence[str]) -> bool:
    """Whether a dataclass has this setting, or its tables have."""
    for name in names:
        if not is_dataclass(kind) or name not in known_keys(type(kind)):
            return False
        kind = getattr(kind, name, None)
    return True


def _instead(names: Sequence[str], given: Any) -> bool:
    """Whether a given setting takes the place of this one."""
    *above, last = names
    return any(other == last and says(given, [*above, key]) for key, other in INSTEAD.items())


def _part(whole: Any, name: str) -> Any:
    return getattr(whole, name, None)


def _at(table: Any, names: Sequence[str]) -> Any:
    for name in names:
        table = table.get(name) if isinstance(table, Mapping) else None
    return table
