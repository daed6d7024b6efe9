"""Paths of an experiment's files: absolute in memory, relative in a TOML file.

A folder may note further places beside its `experiment.toml`: of the data directory and of modules.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, TypeVar, cast

from umbel.data.sources import DATA_DIR_VARIABLE, Sources
from umbel.experiment.layers import Stranger, stranger, strangers_in
from umbel.files.atomic import write_text
from umbel.files.seals import json_text, json_value
from umbel.networks.encoders import PACKAGE
from umbel.settings import whole_path

NOTE = "places.json"
"""Name of the file that notes places."""

EXPLICIT = ("./", "../", "~/", "/")
"""Beginnings of texts that are paths, in settings of classes outside umbel."""

Keys = tuple[str, ...]
"""The keys of a setting, such as ("scenario", "path")."""

Layers = Sequence[tuple[Path, Mapping[str, Any]]]
"""Tables of settings, each over those before it, and the folder that its paths are relative to."""

T = TypeVar("T")


def with_paths(value: T, change: Callable[[Keys, str], str], keys: Keys = ()) -> T:
    """The settings with each path changed.

    `path` is no path beside a `source`, which takes its place, and "package:NAME" is none either.
    """
    if isinstance(value, Stranger):
        table = _table_changed(value.table, type(value), change, keys)
        same = table == value.table
        return value if same else cast("T", stranger(table, type(value).__mro__[2]))
    if isinstance(value, tuple):
        items = tuple(with_paths(item, change, keys) for item in value)
        return value if all(map(_is, items, value)) else cast("T", items)
    if not is_dataclass(value) or isinstance(value, type):
        return value
    given = {f.name: getattr(value, f.name) for f in fields(value) if f.init}
    table = _table_changed(given, type(value), change, keys)
    new = {name: member for name, member in table.items() if member is not given[name]}
    return cast("T", replace(cast("Any", value), **new)) if new else value


def _table_changed(
    table: Mapping[str, Any], kind: type, change: Callable[[Keys, str], str], keys: Keys
) -> dict[str, Any]:
    """Return the members of settings, or of a third-party table, with each path changed."""
    named: frozenset[str] = getattr(kind, "path_settings", frozenset())
    no_paths: frozenset[str] = getattr(kind, "no_paths", frozenset())
    others = not kind.__module__.startswith("umbel.") or issubclass(kind, Stranger)

    def changed(name: str, member: Any) -> Any:
        if isinstance(member, str):
            unused = name == "path" and table.get("source") is not None
            unused = unused or member in no_paths
            path = name in named and not unused and not member.startswith(PACKAGE)
            path = member != "" and (path or (others and member.startswith(EXPLICIT)))
            new = change((*keys, name), member) if path else member
            return member if new == member else new
        if isinstance(member, Mapping):
            return {key: changed(key, each) for key, each in member.items()}
        if isinstance(member, list | tuple):
            items = type(member)(changed(name, each) for each in member)
            return member if all(map(_is, items, member)) else items
        return with_paths(member, change, (*keys, name))

    return {name: changed(name, member) for name, member in table.items()}


def _is(one: object, other: object) -> bool:
    return one is other


def whole(experiment: T, layers: Layers = (), folder: Path | None = None, was: str = "") -> T:
    """The experiment with whole paths: each relative to the folder of the table that has it.

    Defaults are relative to `folder`, by default the current one. What is not there, and was when
    the folder was called `was`, is there still.
    """

    def change(keys: Keys, text: str) -> str:
        of = next((at for at, table in reversed(layers) if _has(table, keys, text)), folder)
        path = whole_path(text, of)
        if was and of == folder and not path.exists():
            before = whole_path(text, Path(was))
            path = before if before.exists() else path
        return str(path)

    return with_paths(experiment, change)


def without_paths(experiment: T) -> T:
    """Return the experiment without paths: data and files are compared by their contents."""
    return with_paths(experiment, lambda _, __: ".")


def for_folder(experiment: T, folder: Path) -> T:
    """The experiment as a TOML file in this folder has it, so that both may be moved together."""
    return with_paths(experiment, lambda _, text: _relative(text, folder))


def _has(table: Any, keys: Keys, text: str) -> bool:
    """Return True if a table has this text at these keys, alone or in a list."""
    for key in keys:
        table = table.get(key) if isinstance(table, Mapping) else None
    return table == text or (isinstance(table, list) and text in table)


def _relative(text: Path | str, folder: Path) -> str:
    """The path from this folder; the whole one if they have nothing in common."""
    path, here = whole_path(text), whole_path(folder)
    if path.parts[:2] != here.parts[:2]:
        return str(path)
    way = Path(os.path.relpath(path, here)).as_posix()
    return way if way.startswith("..") else f"./{way}"


@dataclass(frozen=True)
class Places:
    """A folder's note of places in which its experiment's files are found from anywhere."""

    folder: str = ""  # where the folder itself was
    data_dir: str = ""  # the data directory, from here
    modules: tuple[str, ...] = ()  # the folders of modules that the experiment names, from here

    @classmethod
    def beside(cls, file: Path) -> Places:
        """Read the note beside an experiment's file. Raises `UsageError` if it is damaged."""
        made = json_value(file.with_name(NOTE), cls._from_plain)
        return cls() if made is None else made

    @classmethod
    def _from_plain(cls, table: dict[str, Any]) -> Places:
        return cls(str(table["folder"]), str(table["data_dir"]), tuple(map(str, table["modules"])))

    def found(self, way: str, folder: Path) -> Path | None:
        """A place that is noted in this folder; None if it is there no more."""
        each = (whole_path(way, Path(at)) for at in (folder, self.folder) if str(at))
        return next((path for path in each if path.is_dir()), None) if way else None


def note(folder: Path, experiment: object, table: Mapping[str, Any], data_dir: Path | None) -> None:
    """Note the places of everything that an experiment, with its table, needs from elsewhere.

    Nothing is written if it needs nothing: no paths, modules or data directory.
    """
    file = folder / NOTE
    before = Places.beside(file)
    paths: list[str] = []

    def noted(_: Keys, text: str) -> str:
        paths.append(_relative(text, folder))
        return text

    with_paths(experiment, noted)
    modules = tuple(_relative(at, folder) for at in modules_of(strangers_in(table)).values() if at)
    lasting = data_dir is None or str(data_dir) == os.environ.get(DATA_DIR_VARIABLE)
    data = "" if data_dir is None or lasting else _relative(data_dir, folder)
    now = Places(before.folder or str(whole_path(folder)), data or before.data_dir, modules)
    needed = data or modules or any(path.startswith(".") for path in paths)
    if now != before and needed:
        write_text(file, json_text(asdict(now)))


def sources_of(folder: Path, data_dir: Path | str | None = None) -> Sources:
    """This data directory, or the one that a run's folder notes, or the default one."""
    if data_dir is not None:
        return Sources.default(Path(data_dir))
    places = Places.beside(folder / NOTE)
    return Sources.default(places.found(places.data_dir, folder))


def modules_of(names: Iterable[str]) -> dict[str, Path | None]:
    """The folder in which each module was found that names such as "module:Name" begin with.

    None for modules that were not imported, and for those of installed packages.
    """
    found: dict[str, Path | None] = {}
    for module in dict.fromkeys(name.partition(":")[0] for name in names):
        origin = getattr(sys.modules.get(module), "__file__", None)
        found[module] = None if origin is None or _is_installed(origin) else _root(module, origin)
    return found


def _root(module: str, origin: str) -> Path:
    file = Path(origin)
    file = file.parent if file.stem == "__init__" else file
    return file.absolute().parents[module.count(".")]


def _is_installed(origin: str) -> bool:
    """Return True if a file belongs to Python or to an installed package."""
    installed = {"site-packages", "dist-packages"} & {*Path(origin).parts}
    return bool(installed) or Path(origin).is_relative_to(os.path.dirname(os.__file__))  # noqa: PTH120


def look_in(file: Path, folders: Sequence[Path], table: Mapping[str, Any]) -> None:
    """Find modules that this table names in these folders, and in the places of a note.

    After all other places but the current folder, if that is looked in for the same reason.
    """
    if any(True for _ in strangers_in(table)):
        places = Places.beside(file)
        noted = [places.found(way, file.absolute().parent) for way in places.modules]
        new = dict.fromkeys(str(at) for at in (*noted, *folders) if at is not None)
        end = len(sys.path) - (sys.path[-1:] == [str(Path.cwd())])
        sys.path[end:end] = [at for at in new if at not in sys.path[:end]]
