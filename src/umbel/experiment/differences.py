"""Compares the experiment of a folder with the requested one, setting by setting."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from umbel.checks import UsageError, shown
from umbel.experiment import toml_file
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.flat import flat, same
from umbel.experiment.places import whole
from umbel.experiment.sweep import CONTROL, parts_of
from umbel.experiment.unimported import IN_PYTHON, OWN_MODULE
from umbel.run.digests import near
from umbel.run.wrappers import said_idly

ELSEWHERE = "choose another folder, on the command line by --runs-dir or --set name=..."
"""What to do where a folder holds something else."""

MOST_NAMED = 3
"""Largest number of settings that a message names."""

WORKERS = "engine.workers"
"""A setting that does not change the results: a run may go on with another value of it."""

RESUMED = ("rounds", "checkpoint_every")
"""Settings that a run may have others of when it is resumed."""

MADE_IN_PYTHON = {"scenario": IN_PYTHON, "model": OWN_MODULE}
"""Names of what stands for data and a module made in Python; the names below are of their parts."""

OF_THE_PROCESS = ("model.source", "model.gives")
"""What may differ for one run from process to process."""

FINGERPRINTS = ("model.initial", "model.constants")
"""Sums over the values of a module, which may differ in their last bits."""

UNREADABLE = {
    "scenario.train": "the training examples have other values",
    "scenario.test": "the test examples have other values",
    "scenario.validation": "the validation examples have other values",
    "scenario.groups": "the planted groups are different",
    "scenario.names": "the clients have other names",
    "model.structure": "the module is built differently",
}
"""For each digest, the message if it differs."""


def check_same(path: Path, there: ExperimentSettings, asked: ExperimentSettings) -> None:
    """Raise `UsageError` if the folder's experiment differs in more than workers or description."""
    others = _differences(there, asked)
    others.pop(WORKERS, None)
    if not others:
        return
    how = "choose another --runs-dir"
    if CONTROL in parts_of(asked.name)[1].items():
        how = "remove this folder, and umbel makes it again"
    raise UsageError(f"{path}: holds another experiment ({_listed(others)}); {how}")


def check_still(
    path: Path, there: ExperimentSettings, asked: ExperimentSettings, begun: bool
) -> None:
    """Raise `UsageError` if a folder has got another experiment since this one was written to it.

    If it is begun, settings that a resumed run may change are not compared.
    """
    others = _differences(there, asked)
    left_out = (WORKERS, *(RESUMED if begun else ()))
    others = {name: said for name, said in others.items() if name not in left_out}
    if others:
        said = f"another run has taken this folder meanwhile ({_listed(others)})"
        raise UsageError(f"{path}: {said}; {ELSEWHERE}")


def _differences(there: ExperimentSettings, asked: ExperimentSettings) -> dict[str, str]:
    """A phrase for each setting that differs, by its name."""
    old, new = settings_of(there, asked)
    found = {}
    for name in {**old, **new}:
        one, other = old.get(name), new.get(name)
        in_python = _in_python(name, old) and _in_python(name, new)
        if name == "description" or same(one, other) or (in_python and _alike(name, one, other)):
            continue
        said = f"{name} is {_told(old, name)}, not {_told(new, name)}"
        found[name] = UNREADABLE.get(name, said) if in_python else said
    return found


def _in_python(name: str, settings: Mapping[str, object]) -> bool:
    """Whether a setting is a part of what stands for data or a module made in Python."""
    part = name.partition(".")[0]
    return part in MADE_IN_PYTHON and settings.get(f"{part}.name") == MADE_IN_PYTHON[part]


def _alike(name: str, one: Any, other: Any) -> bool:
    return name in OF_THE_PROCESS or (name in FINGERPRINTS and near(one or (), other or ()))


def _listed(differences: Mapping[str, str]) -> str:
    named = [*differences.values()][:MOST_NAMED]
    if len(differences) > MOST_NAMED:
        named.append(f"and {len(differences) - MOST_NAMED} more")
    return "; ".join(named)


def settings_of(
    there: ExperimentSettings, asked: ExperimentSettings
) -> tuple[Mapping[str, object], Mapping[str, object]]:
    """The settings of a folder's experiment and of another by name, to be compared."""
    old, new = (dict(flat(toml_file.plain(whole(one)))) for one in (there, asked))
    idly = {f"algorithm.{key}" for key in said_idly(toml_file.plain(there.algorithm))}
    return {name: old[name] for name in old if name in new or name not in idly}, new


def _told(values: Mapping[str, object], name: str) -> str:
    return shown(values[name]) if name in values else "unset"
