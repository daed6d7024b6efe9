"""Experiments as TOML: dataclasses read strictly, and written so that they read back the same."""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import tomli_w
from cattrs import Converter
from cattrs.errors import BaseValidationError, IterableValidationError, IterableValidationNote
from cattrs.gen import make_dict_structure_fn

from umbel.algorithms import ALGORITHMS
from umbel.algorithms.base import Algorithm
from umbel.checks import UsageError, check
from umbel.client.optimizers import OPTIMIZERS, Optimizer
from umbel.client.work import WORKS, Work
from umbel.data.scenarios import SCENARIOS
from umbel.data.scenarios.base import Scenario
from umbel.data.shifts import SHIFTS, Shift
from umbel.networks import MODELS, Model
from umbel.runs.config_errors import nearest, problems
from umbel.runs.experiment import Experiment
from umbel.server.clusterers import CLUSTERERS, Clusterer
from umbel.settings import SCALARS, UnfitError, bare, choice, is_choice, is_tuple, items_of, scalar

REGISTRIES: Mapping[type, Mapping[str, Any]] = {
    Algorithm: ALGORITHMS,
    Scenario: SCENARIOS,
    Model: MODELS,
    Shift: SHIFTS,
    Optimizer: OPTIMIZERS,
    Clusterer: CLUSTERERS,
    Work: WORKS,
}
"""What the `name` of a table stands for, by what the table describes."""


def read(file: Path | str, settings: Sequence[str] = ()) -> Experiment:
    """The experiment of a TOML file, with settings such as `algorithm.num_clusters=6` applied.

    With `extends = "other.toml"` a file takes from there what it does not say itself. Raises
    `UsageError` that names every key that is wrong, and what was expected.
    """
    file = Path(file)
    alone = {"name": file.stem, **load_table(file)}
    table = alone
    for setting in settings:
        table = merged(table, parse_setting(setting))
    try:
        experiment: Experiment = structured(table, Experiment)
    except UsageError as error:
        raise UsageError(_blaming(file, alone, settings, str(error))) from None
    return experiment


def _blaming(file: Path, alone: Mapping[str, Any], settings: Sequence[str], mistake: str) -> str:
    """Say where to put it right: in the settings if the file alone is fine."""
    if not settings:
        return f"{file}: {mistake}"
    try:
        structured(alone, Experiment)
    except UsageError:
        return f"{file} with {' '.join(f'--set {setting}' for setting in settings)}: {mistake}"
    return f"--set {mistake} (over {file})"


def write(experiment: Experiment) -> str:
    """TOML that `read` turns into the same experiment."""
    return tomli_w.dumps(plain(experiment))


def structured(table: Mapping[str, Any], kind: type[Any]) -> Any:
    """The dataclass that a table of plain values describes, nested ones included."""
    try:
        return _converter().structure(dict(table), kind)
    except BaseValidationError as error:
        raise UsageError("; ".join(problems(error))) from None


def plain(value: Any, declared: Any = None) -> Any:
    """A dataclass as a table of plain values, without what is None, which must then be the default.

    It says its `name` where the type that is declared for it leaves open which dataclass it is.
    """
    if isinstance(value, tuple):
        return [plain(item, next(iter(get_args(declared)), None)) for item in value]
    if not is_dataclass(value):
        return value
    hints = get_type_hints(type(value))
    members = {f.name: plain(getattr(value, f.name), hints[f.name]) for f in fields(value)}
    for f in fields(value):
        unsaid = members[f.name] is None and f.default is not None
        check(not unsaid, f.name, None, "a value that TOML has: what is left out is the default")
    table = {name: member for name, member in members.items() if member is not None}
    open_types = [bare(kind) for kind in (declared, *get_args(declared))]
    if declared is None:
        open_types = [kind for kind in REGISTRIES if isinstance(value, kind)]
    kind = next((kind for kind in open_types if kind in REGISTRIES), None)
    return table if kind is None else {"name": name_of(type(value), REGISTRIES[kind]), **table}


def name_of(kind: type, registry: Mapping[str, Any]) -> str:
    """What experiments call this type: its name in the registry, or "module:Name"."""
    own = f"{kind.__module__}:{kind.__qualname__}"
    return next((name for name, entry in registry.items() if entry is kind), own)


def load_table(file: Path, extended_by: tuple[Path, ...] = ()) -> dict[str, Any]:
    """The plain values of a TOML file and of those it extends."""
    if file.resolve() in extended_by:
        raise UsageError(f"{file}: extends itself")
    try:
        table = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        needed_by = f", and {extended_by[-1]} extends it" if extended_by else ""
        raise UsageError(f"{file}: can't be read: {reason}{needed_by}") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{file}: not TOML: {error}") from None
    base = table.pop("extends", None)
    if base is None:
        return table
    check(isinstance(base, str), f"{file}: extends", base, "the path of a TOML file")
    return merged(load_table(file.parent / base, (*extended_by, file.resolve())), table)


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Tables one over the other; one named otherwise than the table below replaces it whole."""
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        if isinstance(below, Mapping) and isinstance(value, Mapping) and _same_name(below, value):
            result[key] = merged(_without_former(below, value), value)
        else:
            result[key] = value
    return result


def _same_name(below: Mapping[str, Any], over: Mapping[str, Any]) -> bool:
    return "name" not in over or "name" not in below or over["name"] == below["name"]


def _without_former(below: Mapping[str, Any], over: Mapping[str, Any]) -> Mapping[str, Any]:
    """The lower table without what the upper one says by a former or a present name."""
    kind = ALGORITHMS.get(str(over.get("name", below.get("name"))))
    for names in kind.former.items() if kind else ():
        if any(_says(over, name.split(".")) for name in names):
            for name in names:
                below = _without(below, name.split("."))
    return below


def _says(table: Any, path: Sequence[str]) -> bool:
    for name in path:
        if not isinstance(table, Mapping) or name not in table:
            return False
        table = table[name]
    return True


def _without(table: Mapping[str, Any], path: Sequence[str]) -> Mapping[str, Any]:
    if not _says(table, path):
        return table
    name, *rest = path
    if rest:
        return {**table, name: _without(table[name], rest)}
    return {key: value for key, value in table.items() if key != name}


def parse_setting(text: str) -> dict[str, Any]:
    """`"a.b=3"` -> {"a": {"b": 3}}; what is not a TOML value is a string."""
    path, equals, value = text.partition("=")
    names = path.strip().split(".")
    check(bool(equals) and all(names), "--set", text, "of the form algorithm.num_clusters=6")
    try:
        table: Any = tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        table = value
    for name in reversed(names):
        table = {name: table}
    result: dict[str, Any] = table
    return result


@cache
def _converter() -> Converter:
    converter = Converter(forbid_extra_keys=True)

    def tables_only(kind: Any) -> Any:
        fill: Any = make_dict_structure_fn(kind, converter, _cattrs_forbid_extra_keys=True)
        return lambda value, kind: value if isinstance(value, kind) else fill(_table(value), kind)

    converter.register_structure_hook_factory(is_dataclass, tables_only)
    for kind in SCALARS:
        converter.register_structure_hook(kind, scalar)
    converter.register_structure_hook_func(is_choice, choice)
    converter.register_structure_hook_func(is_tuple, _tuple)
    converter.register_structure_hook_func(
        lambda kind: bare(kind) in REGISTRIES, lambda value, kind: _named(value, bare(kind))
    )
    return converter


def _table(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise UnfitError(f"{value!r} is not a table")
    return value


def _tuple(value: Any, kind: Any) -> tuple[Any, ...]:
    items, errors = [], []
    for number, (item, member) in enumerate(items_of(value, kind)):
        try:
            items.append(_converter().structure(item, member))
        except Exception as error:
            error.add_note(IterableValidationNote("", number, member))
            errors.append(error)
    if errors:
        raise IterableValidationError("", errors, kind)
    return tuple(items)


def _named(table: Any, kind: type) -> Any:
    """The table's `name` says which dataclass, or which value to change, the rest what to set."""
    if isinstance(table, kind):
        return table
    settings = dict(_table(table))
    entry = _entry(settings.pop("name", None), kind)
    if not isinstance(entry, type):
        below = {key: value for key, value in plain(entry).items() if key != "name"}
        entry, settings = type(entry), merged(below, settings)
    for former, present in entry.former.items():
        if former in settings:
            twice = present in settings
            check(not twice, former, settings[former], f"said once: it is {present} now")
            settings[present] = settings.pop(former)
    return _converter().structure(settings, entry)


def _entry(name: Any, kind: type) -> Any:
    registry = REGISTRIES[kind]
    if name is None:
        raise UsageError(f"name: missing; known: {', '.join(registry)}")
    if not isinstance(name, str):
        raise UsageError(f"name: {name!r} is not a string")
    if name in registry:
        return registry[name]
    if ":" not in name:
        raise UsageError(f"name: {name!r} is not known; {nearest(name, registry)}")
    module, _, attribute = name.partition(":")
    try:
        entry = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"name: {name!r} can't be imported: {error}") from None
    of_kind = issubclass(entry, kind) if isinstance(entry, type) else isinstance(entry, kind)
    expected = f"a dataclass that extends {kind.__name__}"
    check(of_kind and is_dataclass(entry), "name", name, expected)
    return entry
