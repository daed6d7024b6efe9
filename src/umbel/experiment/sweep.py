"""Settings with several values, and the experiments that they make of one."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import product
from math import prod
from pathlib import Path
from typing import Any

from umbel.checks import UsageError, check
from umbel.experiment.errors import TableError
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.layers import names_first, parse_setting, path_of, says
from umbel.experiment.toml_file import plain, read, warn_of_dropped
from umbel.settings import whole_path

NOT_SWEPT: Mapping[str, str] = {
    "name": "each experiment has its own name, to which other values are added",
    "description": "put a text with a comma in quotes",
    "seed": "choose several seeds by --seeds and --first-seed",
}

CLOSING = {"[": "]", "{": "}"}

LONGEST_NAME_CHARACTERS = 150
"""Characters of a name, as that of a folder has room for 255 bytes."""

MOST_EXPERIMENTS = 1_000
"""Experiments that one file and several values may make."""

EMPTY = "none"
"""Word for a list without a value, in names of variants."""

CONTROL = ("control", "random-clusters")
"""Setting at the end of a control's name: the control is named as a variant of its method."""

OF_CONTROL = f",{'='.join(CONTROL)}"
"""The end of a control's name."""

NAMED = re.compile(r",(?=[A-Za-z_][\w.]*=)")
"""Text before each setting in the name of a variant."""


@dataclass(frozen=True)
class Sweep:
    """The experiments that several values of some settings make of one."""

    experiments: tuple[ExperimentSettings, ...]
    lacking: tuple[str, ...]  # settings that none of these experiments has


def values_of(setting: str) -> list[str]:
    """`"a.b=1,2"` -> ["a.b=1", "a.b=2"]; commas in brackets, braces and quotes do not divide."""
    path, equals, text = setting.partition("=")
    parts = _divided(text)
    if not equals or len(parts) == 1:
        return [setting]
    check(all(part.strip() for part in parts), "--set", setting, "a list without empty values")
    name = path.strip()
    if name in NOT_SWEPT:
        raise UsageError(f"--set {setting}: {name} takes one value: {NOT_SWEPT[name]}")
    return [f"{name}={part.strip()}" for part in parts]


def sweep(file: Path, settings: Sequence[str]) -> Sweep:
    """The experiment of a file with every combination of the values of its settings.

    Settings are applied in the order they are given. One that an experiment has no key for is left
    out of it, so that this is there once, to compare with. The name of each experiment says those
    with several values: `flacc-digits,algorithm.n_merge=1`. Raises `UsageError` as `read`.
    """
    choices = [values_of(setting) for setting in settings]
    count = prod(map(len, choices))
    check(
        count <= MOST_EXPERIMENTS,
        "--set",
        f"{count:,} combinations of values",
        f"{MOST_EXPERIMENTS:,} at most",
    )
    several = {path_of(values[0]) for values in choices if len(values) > 1}
    has = cache(partial(_has, file))
    experiments: dict[str, ExperimentSettings] = {}
    used: set[str] = set()
    for combination in product(*choices):
        applied: list[str] = []
        for setting in names_first(combination):
            if has(tuple(applied), setting):
                applied.append(setting)
        used.update(map(path_of, applied))
        experiment = read(file, applied)
        warn_of_dropped(file, applied, experiment)
        given = {path_of(setting): setting for setting in applied if path_of(setting) in several}
        name = _named(experiment, dict(sorted(given.items())))
        named = replace(experiment, name=name)
        if experiments.setdefault(name, named) != named:  # two values that are written alike
            other = f"{name}-{_digest(repr(plain(experiment)))}"
            experiments[other] = replace(experiment, name=other)
    asked = {path_of(values[0]) for values in choices}
    return Sweep(tuple(experiments.values()), tuple(sorted(asked - used)))


def parts_of(name: str) -> tuple[str, dict[str, str]]:
    """The name of an experiment without the values of a sweep, and these by their settings."""
    base, *settings = NAMED.split(name)
    return base, dict(setting.partition("=")[::2] for setting in settings)


def _divided(text: str) -> list[str]:
    """A text at the commas that are in no brackets, braces or quotes."""
    parts, open_, quote = [""], "", ""
    for character in text:
        if quote:
            quote = "" if character == quote else quote
        elif character in "\"'":
            quote = character
        elif character in CLOSING:
            open_ += CLOSING[character]
        elif open_ and character == open_[-1]:
            open_ = open_[:-1]
        if character == "," and not open_ and not quote:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def _has(file: Path, settings: Sequence[str], setting: str) -> bool:
    """Return True if a file's experiment, with these settings, has the key of a further one."""
    try:
        read(file, [*settings, setting])
    except TableError as error:
        # Whatever else is wrong is said when all settings are applied.
        keys = path_of(setting).split(".")
        above = {".".join(keys[: n + 1]) for n in range(len(keys))}
        return not any(problem.unknown in above for problem in error.problems)
    except UsageError:
        pass
    return True


def _named(experiment: ExperimentSettings, given: Mapping[str, str]) -> str:
    """The experiment's name with the values that it has at these paths, given as settings."""
    table = plain(experiment)
    values = {path: _slug(_value(table, path, setting)) for path, setting in given.items()}
    name = _joined(experiment.name, values)
    if len(name) <= LONGEST_NAME_CHARACTERS:
        return name
    short = _joined(experiment.name, {_last_key(path, values): v for path, v in values.items()})
    return (
        short
        if len(short) <= LONGEST_NAME_CHARACTERS
        else f"{short[: LONGEST_NAME_CHARACTERS - 7]}-{_digest(name)}"
    )


def _joined(name: str, values: Mapping[str, str]) -> str:
    return name + "".join(f",{path}={value}" for path, value in values.items())


def _last_key(path: str, paths: Collection[str]) -> str:
    """The last key of a path, if no other of these paths has it, too."""
    key = path.rpartition(".")[2]
    return key if sum(other.rpartition(".")[2] == key for other in paths) == 1 else path


def _value(table: Mapping[str, Any], path: str, setting: str) -> str:
    """The value at a path as text; as it was given, where the experiment keeps it elsewhere.

    So is the path of a file, which the experiment has as a whole.
    """
    given = _at(parse_setting(setting), path)
    value = _at(table, path) if says(table, path.split(".")) else given
    return given if value == str(whole_path(given)) else value


def _at(table: Any, path: str) -> str:
    """A value as text, the same however it was written."""
    for key in path.split("."):
        table = table[key]
    if isinstance(table, float):
        return repr(table).removesuffix(".0")
    if isinstance(table, str):
        return table
    if isinstance(table, list) and not any(isinstance(item, (list, Mapping)) for item in table):
        text = "_".join(item if isinstance(item, str) else json.dumps(item) for item in table)
        if not table:
            return EMPTY
        return text if text != EMPTY else json.dumps(table)
    return json.dumps(table)


def _slug(text: str) -> str:
    """A text for names of folders; where something is lost, a digest keeps it apart."""
    kept = re.sub(r"[^A-Za-z0-9_.+-]", "_", text)[:40]
    # Some file systems take a and A for the same.
    return text if kept == text != "" and text == text.lower() else f"{kept}-{_digest(text)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:6]
