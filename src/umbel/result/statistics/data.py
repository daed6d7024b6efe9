"""Comparison of the clients and examples of two runs: only with equal ones can runs be compared."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from umbel.data.scenarios.base import Scenario
from umbel.experiment.made_in_python import OwnData
from umbel.experiment.places import without_paths
from umbel.files.seals import BROKEN
from umbel.folder.how_to_continue import over_flower
from umbel.folder.tensor_files import header_of
from umbel.result.run import Result
from umbel.run.digests import near
from umbel.run.personal import Personal
from umbel.summary import few

log = logging.getLogger(__name__)

WHOLE = ("clients", "names of clients", "planted groups", "inputs", "test examples")
"""Traits of a federation that stay when validation examples are set apart for tuning."""

TOLD = ("clients", "inputs", "test examples")
"""Those that a server knows of clients elsewhere as it knows them of clients in its process."""

SET_APART: Mapping[str, Any] = {
    "examples": 0,
    "train": "",
    "validation_examples": None,
    "validation": None,
}
"""Those descriptions of data made in Python that depend on the fraction set apart, left blank."""

VALUES = "values"


@dataclass(frozen=True)
class Data:
    """The data of a run: its scenario, and digests of its examples then, if known."""

    scenario: Scenario
    personal: Personal | None = None
    traits: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, run: Result) -> Data:
        """Read the data of a run in a folder, from the header of its checkpoint alone."""
        made = header_of(run.folder.file("checkpoint.safetensors")).get("made")
        said = made.get("federation") if isinstance(made, dict) else None
        experiment, traits = run.experiment, said if isinstance(said, dict) else {}
        if over_flower(run.folder.path):
            traits = {name: traits[name] for name in TOLD if name in traits}
        return cls(experiment.scenario, experiment.personal, traits)

    def is_like(self, other: Data) -> bool:
        """Return True if results on both can be compared."""
        return self._source(other) == other._source(self) and not self.was_changed(other)

    def _source(self, other: Data) -> Scenario:
        """The scenario, with no more of data made in Python than both runs must have alike."""
        if not isinstance(self.scenario, OwnData):
            known = self.traits and other.traits  # then files are compared by what they held
            return without_paths(self.scenario) if known else self.scenario
        # The engine changes no examples.
        whole = replace(self.scenario, engine="")
        alike = _fraction(self.personal) == _fraction(other.personal)
        return whole if alike else replace(whole, **SET_APART)

    def was_changed(self, other: Data) -> bool:
        """Return True if the files of one scenario held other examples."""
        both = [name for name in self.traits if name in other.traits]
        if self.personal != other.personal:
            both = [name for name in both if name in WHOLE]
        return any(not _alike(name, self.traits[name], other.traits[name]) for name in both)


def _fraction(personal: Personal | None) -> float | None:
    return None if personal is None else personal.validation_fraction


def _alike(name: str, one: Any, other: Any) -> bool:
    try:
        return near(one, other) if name == VALUES else bool(one == other)
    except BROKEN:  # a forged checkpoint may say anything
        return False


def warn_of_others(runs: Iterable[Result]) -> None:
    """Say which finished runs of a scenario and seed are of other examples than the first."""
    first: dict[tuple[int, str], tuple[Result, Data]] = {}
    others = []
    for run in runs:
        if run.finished:
            data = Data.of(run)
            key = run.experiment.seed, repr(data.scenario)
            earlier, known = first.setdefault(key, (run, data))
            if data.was_changed(known):
                others.append((run.folder.path.name, earlier.folder.path.name))
    if others:
        log.warning(
            "%s: clients or examples differ from those of %s, because the data changed in between: "
            "these runs are not compared; make one of them again",
            few([name for name, _ in others]),
            few(list(dict.fromkeys(name for _, name in others))),
        )
