"""Comparison of two experiments by their settings, with a phrase for each change.

What stands for data and modules made in Python has digests as settings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import Path

from umbel.checks import UsageError, shown
from umbel.engines.choice import EngineSettings
from umbel.experiment import toml_file
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.layers import IN_PYTHON, OWN_MODULE, flat, same
from umbel.experiment.places import whole
from umbel.experiment.sweep import CONTROL, parts_of
from umbel.run.digests import near

ELSEWHERE = "choose another folder, on the command line by --runs-dir or --set name=..."
"""Advice if a folder holds something else."""

MOST_NAMED = 3
"""Largest number of settings that a message names."""

WORKERS = ("description", "engine.workers")
"""Settings that do not change the results: a run may go on with other values of them."""

RESUMED = (*WORKERS, "rounds", "checkpoint_every")
"""Settings that a run may have others of when it is resumed."""

NAMED = (*WORKERS, "name", "engine.address")
"""Settings of which a run made in Python may have others than its folder."""

MADE_IN_PYTHON = {"scenario": IN_PYTHON, "model": OWN_MODULE}
"""Names of what stands for data and a module made in Python; the names below are of their parts."""

OF_THE_PROCESS = ("model.source", "model.gives")
"""Settings that may differ for one run from process to process."""

FINGERPRINTS = ("model.initial", "model.constants")
"""Sums over the values of a module, which may differ in their last bits."""

UNREADABLE = {
    "scenario.train": "the training examples have other values",
    "scenario.test": "the test examples have other values",
    "scenario.validation": "the validation examples have other values",
    "scenario.groups": "the planted groups are different",
    "scenario.names": "the clients have other names",
    "model.structure": "the module is built differently",
    "model.initial": "the module's initial values are different",
    "model.constants": "the module's constants values are different",
    "model.frozen": "the frozen values of the module are different",
}
"""For each digest, the message if it differs."""

DURING_A_RUN = (
    *("name", "description", "rounds", "evaluate_every", "checkpoint_every", "metrics"),
    *(f"engine.{each.name}" for each in fields(EngineSettings) if each.name != "precision"),
)
"""Settings that may change during a run: they change no model, or only the number of rounds."""


def check_same(
    path: Path,
    there: ExperimentSettings,
    asked: ExperimentSettings,
    free: Collection[str] = WORKERS,
    what: str = "holds another experiment",
    how: str = "choose another --runs-dir",
) -> None:
    """Raise `UsageError` if a folder's experiment has other settings than were asked for."""
    if others := differences(there, asked, free):
        if CONTROL in parts_of(asked.name)[1].items():
            how = "remove this folder, and umbel makes it again"
        raise UsageError(f"{path}: {what} ({listed(others)}); {how}")


def differences(
    was: ExperimentSettings, now: ExperimentSettings, free: Collection[str] = ()
) -> list[str]:
    """A phrase for each setting that differs, but for the `free` ones."""
    old, new = settings_of(whole(was), free), settings_of(whole(now), free)
    found = []
    for name in {**old, **new}:
        one, other = old.get(name), new.get(name)
        python = _in_python(name, old) and _in_python(name, new)
        close = name in FINGERPRINTS and near(one or (), other or ())  # type: ignore[arg-type]
        if same(one, other) or (python and (close or name in OF_THE_PROCESS)):
            continue
        said = change(name, old.get(name, "unset"), new.get(name, "unset"))
        found.append(UNREADABLE.get(name, said) if python else said)
    return found


def change(name: str, was: object, now: object) -> str:
    """A phrase for a fact that has changed."""
    before, after = (each if each == "unset" else shown(each) for each in (was, now))
    return f"{name} was {before} and is {after}"


def listed(changes: Sequence[str]) -> str:
    """The first of these phrases, and how many more there are."""
    more = len(changes) - MOST_NAMED
    return "; ".join([*changes[:MOST_NAMED], *([f"and {more} more"] if more > 0 else [])])


def settings_of(experiment: ExperimentSettings, free: Collection[str] = ()) -> dict[str, object]:
    """The settings of an experiment by name, but for the `free` ones."""
    table = flat(toml_file.plain(experiment))
    return {name: value for name, value in table if name not in free}


def _in_python(name: str, settings: Mapping[str, object]) -> bool:
    """Return True for a setting of the placeholder for data or a module made in Python."""
    part = name.partition(".")[0]
    return part in MADE_IN_PYTHON and settings.get(f"{part}.name") == MADE_IN_PYTHON[part]
