"""Experiments as TOML: dataclasses read strictly, and written so that they read back the same."""

from __future__ import annotations

import logging
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import MISSING, fields, is_dataclass
from datetime import date, time
from functools import cache, partial, reduce
from pathlib import Path
from typing import Any, cast, get_args, get_type_hints

import tomli_w
from cattrs import Converter
from cattrs.errors import BaseValidationError, IterableValidationError, IterableValidationNote
from cattrs.gen import make_dict_structure_fn

from umbel.algorithms.base import Algorithm
from umbel.algorithms.restarts import innermost
from umbel.checks import UsageError, check, nearest, shown
from umbel.client.imports import imported
from umbel.experiment.errors import TableError, problems
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.layers import (
    OURS,
    Stranger,
    flat,
    layers_of,
    load_table,
    merged,
    path_of,
    stranger,
    strangers_in,
    tables_of,
    with_lists,
)
from umbel.experiment.library import all_methods
from umbel.experiment.made_in_python import STANDING_FOR
from umbel.experiment.places import Places, for_folder, look_in, whole
from umbel.experiment.setting_paths import REGISTRIES as REGISTRIES
from umbel.run import wrappers
from umbel.settings import (
    SCALARS,
    NotATableError,
    bare,
    choice,
    is_choice,
    is_tuple,
    items_of,
    members_of,
    scalar,
)

log = logging.getLogger(__name__)

TOML = (str, bool, int, float, date, time)
"""TOML's types other than lists and tables; a `datetime` is a `date`."""


def read(
    file: Path | str,
    settings: Sequence[str] = (),
    *,
    looking: bool = False,
    allow: Callable[[Iterable[str]], object] | None = None,
) -> ExperimentSettings:
    """The settings of an experiment in a TOML file, as `umbel.read` reads them.

    `allow` is called with the names of what will be imported, before any of it is.
    """
    file = Path(os.path.expanduser(file))  # noqa: PTH111
    layers = layers_of(file)
    named = {"name": file.stem.lstrip(".") or ExperimentSettings.name}
    alone = reduce(merged, (table for _, table in layers), named)
    settings = [settings] if isinstance(settings, str) else settings
    above = tables_of(settings)
    try:
        table = reduce(merged, above, alone)
        if allow is not None:
            allow([*strangers_in(table)])
        with _blaming(file, alone, settings, looking):
            if not looking:
                look_in(file, [folder for folder, _ in reversed(layers)], table)
            made: ExperimentSettings = structured(table, ExperimentSettings, looking)
            layers += [(Path.cwd(), each) for each in above]
            return whole(made, layers, file.absolute().parent, Places.beside(file).folder)
    except RecursionError:
        raise UsageError(f"{file}: tables in tables, too deep to be read") from None


@contextmanager
def _blaming(
    file: Path, alone: Mapping[str, Any], settings: Sequence[str], looking: bool
) -> Iterator[None]:
    """Add the source of an error: a setting that it names, if the file alone is correct, or all."""
    try:
        yield
    except UsageError as error:
        over = "".join(f" --set {setting}" for setting in settings)
        message = f"{file}{' with' * bool(over)}{over}: {error}"
        if any(re.match(rf"{re.escape(path_of(each))}[.:\[ ]", str(error)) for each in settings):
            with suppress(UsageError):
                structured(alone, ExperimentSettings, looking)
                message = f"--set {error} (over {file})"
        raise TableError(message, getattr(error, "problems", ())) from None


def warn_of_dropped(file: Path, settings: Sequence[str], experiment: ExperimentSettings) -> None:
    """Warn of settings of a file that are dropped with a table to which `settings` give a new name.

    `experiment` is what the file and these settings give. Only what the new kind has, too, counts.
    """
    places = [path.removesuffix(".name") for path in map(path_of, settings) if path[-5:] == ".name"]
    if not places:
        return
    nothing: Mapping[str, Any] = {}
    over = dict(flat(reduce(merged, tables_of(settings), nothing)))
    below, now = dict(flat(load_table(file))), dict(flat(plain(experiment)))
    for place in places:
        was, is_ = (table.get(f"{place}.name") for table in (below, over))
        lost = [
            name
            for name, value in below.items()
            if name.startswith(f"{place}.") and name != f"{place}.name" and name not in over
            if was not in (None, is_) and now.get(name, value) != value
        ]
        if lost:
            said = f"{place}.name={is_}: settings of {was} are left out: {', '.join(lost)}"
            how = f"give those that hold here, too, as by --set {lost[0]}=..."
            log.warning("%s: %s; %s", file.name, said, how)


def write(experiment: ExperimentSettings, folder: Path | None = None) -> str:
    """TOML that `read` turns into the same experiment, from a file in this folder if one is given.

    Raises `UsageError` as `writable`.
    """
    there = experiment if folder is None else for_folder(experiment, folder)
    return tomli_w.dumps(writable(there))


def writable(value: Any) -> Any:
    """A dataclass as `plain` has it. Raises `UsageError` that names a value which TOML lacks."""
    table = plain(value)
    _check_toml(table)
    return table


def _check_toml(value: Any, path: str = "") -> None:
    if isinstance(value, Mapping):
        for key, member in value.items():
            _check_toml(member, f"{path}.{key}" if path else str(key))
    elif isinstance(value, (list, tuple)):
        for member in value:
            _check_toml(member, path)
    else:
        check(isinstance(value, TOML), path, value, "a value that TOML can hold, such as a number")


def structured(table: Mapping[str, Any], kind: type[Any], looking: bool = False) -> Any:
    """The dataclass that a table of plain values describes, nested ones included.

    With `looking`, no code outside umbel is imported.
    """
    try:
        return _converter(looking).structure(dict(table), kind)
    except BaseValidationError as error:
        found = list(problems(error))
        raise TableError("; ".join(problem.said for problem in found), found) from None


def importing(experiment: ExperimentSettings, part: str) -> ExperimentSettings:
    """Import the modules that this part of an experiment names, if it was read without imports."""
    members = {f.name: getattr(experiment, f.name) for f in fields(experiment)}
    table = {name: member for name, member in members.items() if member is not None}
    imported: ExperimentSettings = structured(
        {**table, part: plain(table[part])}, ExperimentSettings
    )
    return imported


def plain(value: Any, declared: Any = None) -> Any:
    """A dataclass as a table of plain values.

    Fields that are None are left out: None must be their default.

    The table has a `name` if the declared type allows several dataclasses.
    """
    if isinstance(value, Stranger):
        return dict(value.table)
    if isinstance(value, tuple):
        return [plain(item, next(iter(get_args(declared)), None)) for item in value]
    if not is_dataclass(value):
        return with_lists(value)
    if isinstance(value, wrappers.WRAPPERS):
        settings = {key: plain(getattr(value, key)) for key in wrappers.keys_of(type(value))}
        return {**plain(value.of, declared), **settings}
    hints = _hints(cast("type", type(value)))
    members = {f.name: plain(getattr(value, f.name), hints[f.name]) for f in fields(value)}
    for f in fields(value):
        unsaid = members[f.name] is None and f.default is not None
        check(
            not unsaid, f.name, None, "a value that TOML can hold: if left out, it has its default"
        )
    table = {name: member for name, member in members.items() if member is not None}
    open_types = [bare(kind) for kind in (declared, *get_args(declared))]
    if declared is None:
        open_types = [kind for kind in REGISTRIES if isinstance(value, kind)]
    kind = next((kind for kind in open_types if kind in REGISTRIES), None)
    if kind is not None:
        _check_free(type(value))
    return table if kind is None else {"name": name_of(type(value), REGISTRIES[kind]), **table}


@cache
def _hints(kind: type) -> Mapping[str, Any]:
    """The types of a dataclass's fields; cached, as finding them out is the slowest step here."""
    return get_type_hints(kind)


def name_of(kind: type, registry: Mapping[str, Any]) -> str:
    """The name of this type in experiments: its name in the registry, or "module:Name"."""
    own = f"{kind.__module__}:{kind.__qualname__}"
    known = {**registry, **STANDING_FOR}
    return next((name for name, entry in known.items() if entry is kind), own)


def _check_free(kind: type) -> None:
    """Raise `UsageError` if a dataclass has a field of a name that tables use for its class."""
    if any(f.name == "name" for f in fields(cast("Any", kind))):
        how = "rename it: the `name` of a table says which class it is"
        raise UsageError(f"name: a field of {kind.__name__}; {how}")


@cache
def _converter(looking: bool) -> Converter:
    converter = Converter(forbid_extra_keys=True)

    def tables_only(kind: Any) -> Any:
        fill: Any = make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True)

        def filled(value: Any, kind: Any) -> Any:
            return value if isinstance(value, kind) else fill(_over_defaults(kind, value), kind)

        return filled

    converter.register_structure_hook_factory(is_dataclass, tables_only)
    for kind in SCALARS:
        converter.register_structure_hook(kind, scalar)
    converter.register_structure_hook_func(is_choice, choice)
    converter.register_structure_hook_func(is_tuple, partial(_tuple, converter))
    converter.register_structure_hook_func(
        lambda kind: members_of(kind)[0] in SCALARS and members_of(kind)[-1] in REGISTRIES,
        partial(_scalar_or_named, converter, looking),
    )
    converter.register_structure_hook_func(
        lambda kind: bare(kind) in REGISTRIES,
        lambda value, kind: _named(converter, value, bare(kind), looking),
    )
    return converter


def _over_defaults(kind: type, value: Any) -> Mapping[str, Any]:
    """Read the table of a dataclass; its inner tables are merged with the dataclass's defaults.

    For example, the local training of a method may have other defaults than `LocalTraining`.
    """
    table = dict(_table(value))
    for f in fields(kind):
        given, default = table.get(f.name), f.default
        default = default if f.default_factory is MISSING else f.default_factory()
        declared = bare(_hints(kind)[f.name])
        if not isinstance(given, Mapping) or not is_dataclass(default):
            continue
        if declared not in REGISTRIES:
            below = {each.name: getattr(default, each.name) for each in fields(default)}
            table[f.name] = merged(below, given)
        elif "name" not in given:
            table[f.name] = merged(plain(default, declared), given)
    return table


def _scalar_or_named(converter: Converter, looking: bool, value: Any, kind: Any) -> Any:
    """A value of a union of a scalar and a kind of named tables, such as `participation`."""
    plain_kind, named = members_of(kind)
    if isinstance(value, Mapping | named):
        return _named(converter, value, named, looking)
    return scalar(value, plain_kind)


def _table(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise NotATableError(value)
    return value


def _tuple(converter: Converter, value: Any, kind: Any) -> tuple[Any, ...]:
    items, errors = [], []
    for number, (item, member) in enumerate(items_of(value, kind)):
        try:
            items.append(converter.structure(item, member))
        except Exception as error:
            error.add_note(IterableValidationNote("", number, member))
            errors.append(error)
    if errors:
        raise IterableValidationError("", errors, kind)
    return tuple(items)


def _named(converter: Converter, table: Any, kind: type, looking: bool) -> Any:
    """Make the value of a table: `name` is its dataclass or a value to change."""
    if isinstance(table, kind):
        return table
    settings = dict(_table(table))
    if looking and _is_stranger(settings.get("name"), kind):
        return stranger(settings, kind)
    entry = _entry(settings.pop("name", None), kind)
    if not isinstance(entry, type):
        below = {key: value for key, value in plain(entry).items() if key != "name"}
        entry, settings = type(innermost(entry)), merged(below, settings)
    _check_free(entry)
    if kind is Algorithm:
        return wrappers.completed(wrappers.structured(settings, entry, converter.structure))
    return converter.structure(settings, entry)


def _is_stranger(name: Any, kind: type) -> bool:
    known = not isinstance(name, str) or name in REGISTRIES[kind] or name.startswith(OURS)
    return not known and ":" in name


def _entry(name: Any, kind: type) -> Any:
    registry = REGISTRIES[kind]
    if name is None:
        raise UsageError(f"name: missing; known: {', '.join(registry)}")
    if not isinstance(name, str):
        raise UsageError(f"name: {shown(name)} is not a string")
    if name in registry:
        return registry[name]
    if name in STANDING_FOR:
        return STANDING_FOR[name]
    if ":" not in name:
        otherwise = f"known are {all_methods()}" if kind is Algorithm else ""
        raise UsageError(f"name: {name!r} is not known; {nearest(name, registry, otherwise)}")
    entry = imported("name", name)
    of_kind = issubclass(entry, kind) if isinstance(entry, type) else isinstance(entry, kind)
    expected = f"a dataclass that extends {kind.__name__}"
    check(of_kind and is_dataclass(entry), "name", name, expected)
    return entry
