"""Tables of settings: TOML files, those that they extend, and single settings over them."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import reduce
from pathlib import Path
from types import new_class
from typing import Any

from umbel.checks import UsageError, check
from umbel.files.reading import read_text

LARGEST = 2**18
"""Bytes of a file, or of a setting: those of more take too long to read."""

LONGEST_CHAIN = 50
"""Files that extend one another."""


def load_table(file: Path) -> dict[str, Any]:
    """The plain values of a TOML file and of those it extends."""
    return reduce(merged, (table for _, table in layers_of(file)))


def layers_of(file: Path, extended_by: tuple[Path, ...] = ()) -> list[tuple[Path, dict[str, Any]]]:
    """The tables of the files that a TOML file extends, and its own, and the folder of each."""
    try:
        table = parsed(read_text(file, LARGEST))
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: not TOML: {error}") from None
    except UsageError as error:
        needed_by = f", and {extended_by[-1]} extends it" if extended_by else ""
        raise UsageError(f"{error}{needed_by}") from None
    if file.resolve() in extended_by:
        raise UsageError(f"{file}: extends itself")
    if len(extended_by) == LONGEST_CHAIN:
        raise UsageError(f"{file}: the last of {LONGEST_CHAIN} files that extend one another")
    base = table.pop("extends", None)
    own = (file.absolute().parent, table)
    if base is None:
        return [own]
    check(isinstance(base, str), f"{file}: extends", base, "the path of a TOML file")
    below = file.parent / os.path.expanduser(base)  # noqa: PTH111
    return [*layers_of(below, (*extended_by, file.resolve())), own]


INSTEAD = {"epochs": "steps"}
"""Settings of local training that count only without another: set over it, they take its place.

Tables with a name, such as a method's, have settings of their own, which may be called the same.
"""


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Merge tables; an upper one with another `name` replaces the lower one as a whole."""
    named = "name" in base or "name" in over
    replaced = {other for key, other in INSTEAD.items() if key in over and not named}
    result = {key: value for key, value in base.items() if key not in replaced}
    for key, value in over.items():
        below = result.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping) and _same_name(below, value):
            result[key] = merged(below, value)
        else:
            result[key] = value
    return result


def _same_name(below: Mapping[str, Any], over: Mapping[str, Any]) -> bool:
    return "name" not in over or "name" not in below or over["name"] == below["name"]


def says(table: Any, path: Sequence[str]) -> bool:
    """Return True if there is a value at this path of keys."""
    for name in path:
        if not isinstance(table, Mapping) or name not in table:
            return False
        table = table[name]
    return True


def parse_setting(text: str) -> dict[str, Any]:
    """`"a.b=3"` -> {"a": {"b": 3}}; a value that is not TOML is a string."""
    path, equals, value = text.partition("=")
    names = path.strip().split(".")
    check(bool(equals) and all(names), "--set", text, "of the form algorithm.num_clusters=6")
    try:
        whole = parsed(f"value = {value}")
        check(len(whole) == 1, "--set", text, "one setting: give each a --set of its own")
        table: Any = whole["value"]
    except tomllib.TOMLDecodeError:
        table = value
    for name in reversed(names):
        table = {name: table}
    result: dict[str, Any] = table
    return result


def path_of(setting: str) -> str:
    """`"a.b=3"` -> "a.b"."""
    return setting.partition("=")[0].strip()


def names_first(settings: Sequence[str]) -> list[str]:
    """The settings in the order in which they take effect.

    One that begins a table anew, as it is a table or names a method, network or scenario, undoes no
    other.
    """

    def place(setting: str) -> tuple[bool, int]:
        path, _, value = (part.strip() for part in setting.partition("="))
        begins = path.endswith(".name") or value.startswith("{")
        depth = path.removesuffix(".name").count(".")
        return not begins, depth if begins else 0

    return sorted(settings, key=place)


def tables_of(settings: Sequence[str]) -> list[dict[str, Any]]:
    """The settings as tables, each over those before it."""
    return [parse_setting(setting) for setting in names_first(settings)]


def parsed(text: str) -> dict[str, Any]:
    """Parse a text as TOML. Raises `TOMLDecodeError` if the parser can't read it."""
    if len(text) > LARGEST:
        raise tomllib.TOMLDecodeError(f"more than {LARGEST:,} characters")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        raise
    except ValueError:
        raise tomllib.TOMLDecodeError("a number of too many digits") from None
    except RecursionError:
        raise tomllib.TOMLDecodeError("brackets in brackets, too deep to be read") from None


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
    """Return True if two values of a setting are equal, where NaN equals itself."""
    return one == other or str(one) == str(other)


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


NAMING = ("name", "source")


def strangers_in(value: Any, within: bool = False) -> Iterator[str]:
    """Return the third-party names that an experiment, as a table, would import."""
    if isinstance(value, Mapping):
        # Other values name nothing, and a number may have too many digits to become a text.
        name, source = (each if isinstance(each := value.get(key), str) else "" for key in NAMING)
        if within and ":" in name and not name.startswith(OURS):
            yield name
        if name == OWN_MODULE and source:
            yield source
        metrics = value.get("metrics")
        if not within and isinstance(metrics, list):
            yield from (own for own in metrics if isinstance(own, str) and ":" in own)
        value = [*value.values()]
    if isinstance(value, list):
        for member in value:
            yield from strangers_in(member, within=True)
