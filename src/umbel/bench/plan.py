"""What is compared: scenarios, methods, and the settings among which trial runs choose."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

import numpy as np

from umbel.algorithms import ALGORITHMS
from umbel.algorithms.restarts import innermost
from umbel.checks import UsageError, nearest
from umbel.client.imports import imported
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.layers import merged, parse_setting
from umbel.experiment.toml_file import structured
from umbel.result.outcomes import rounded
from umbel.run.wrappers import known_keys

TABLE = Path(__file__).parent / "bench.toml"

TRIAL_SEED = 1_000
"""Seed of the trial runs, which no compared run has."""

OWN = ("description", "lr", "clusters", "local")
"""Keys of a scenario of the bench that experiments do not have."""

Choice = Mapping[str, Any]
"""Values of settings by their paths, as "algorithm.local.lr"."""


@dataclass(frozen=True)
class BenchScenario:
    """A scenario with everything but the method."""

    name: str
    description: str
    lr: Sequence[float]  # learning rates to choose from
    clusters: Sequence[int]  # numbers of clusters to choose from; one if groups are planted
    local: Mapping[str, Any]  # settings of local training
    experiment: Mapping[str, Any]  # the other settings

    @property
    def planted(self) -> bool:
        """True if there are groups to be found, so that their number is known, too."""
        return len(self.clusters) == 1


@dataclass(frozen=True)
class Bench:
    """The scenarios and methods of one size."""

    size: str
    seeds: int
    trials: int  # for each method and scenario
    cost: float  # of a method's round, in those of FedAvg
    scenarios: Mapping[str, BenchScenario]
    methods: Mapping[str, Mapping[str, Any]]  # by name: `method`, and values by settings' paths
    left_out: Mapping[str, str]  # methods of the registry that are not run, and why

    @classmethod
    def of(cls, size: str, added: Mapping[str, str] = {}) -> Bench:
        """The bench of this size, with further methods: names such as "module:Name" by name."""
        table = tomllib.loads(TABLE.read_text(encoding="utf-8"))
        table, left_out, scenarios = merged(table, table[size]), table["left-out"], {}
        methods = {name: {"method": name} for name in ALGORITHMS if name not in left_out}
        methods = merged(methods, table["methods"])
        methods |= {name: {"method": path} for name, path in added.items()}
        for name in (name for name in table["scenarios"] if name not in table["without"]):
            settings = merged(table["scenario"], table["scenarios"][name])
            own = {key: settings.pop(key) for key in OWN}
            scenarios[name] = BenchScenario(name, experiment=settings, **own)
        seeds, trials, cost = table["seeds"], table["trials"], table["cost"]
        return cls(size, seeds, trials, cost, scenarios, methods, left_out)

    def part(self, methods: str | None, scenarios: str | None, added: Sequence[str] = ()) -> Bench:
        """The part with these names, divided by commas, and with what was added.

        Raises `UsageError` for a name that is not known.
        """
        kept = {*_named("--methods", methods, [*self.methods, *self.left_out]), *added}
        wanted = _named("--scenarios", scenarios, [*self.scenarios])
        return replace(
            self,
            methods={name: of for name, of in self.methods.items() if name in kept},
            left_out={name: why for name, why in self.left_out.items() if name in kept},
            scenarios={name: self.scenarios[name] for name in wanted},
        )

    def choices(self, scenario: BenchScenario, method: str) -> list[Choice]:
        """The settings of each trial run: a Latin hypercube (McKay, Beckman & Conover 1979).

        Each setting takes its values about equally often, in an order of its own, which is the same
        for all methods: two methods that do the same have the same trials.
        """
        tried = {"algorithm.local.lr": scenario.lr, "algorithm.num_clusters": scenario.clusters}
        tried |= {path: of for path, of in self.methods[method].items() if path != "method"}
        known, columns = self._keys(method), {}
        for number, (path, values) in enumerate(tried.items()):
            order = np.random.default_rng(number).permutation(self.trials).tolist()
            table, key, *_ = path.split(".")
            if table != "algorithm" or key in known:
                columns[path] = [values[n * len(values) // self.trials] for n in order]
        return [{path: of[n] for path, of in columns.items()} for n in range(self.trials)]

    def experiment(
        self, scenario: BenchScenario, method: str, choice: Choice, name: str, seed: int
    ) -> ExperimentSettings:
        """The experiment of a method with these settings. Raises `UsageError` if it can't be."""
        about = {"name": name, "seed": seed, "evaluate_every": scenario.experiment["rounds"]}
        algorithm: dict[str, Any] = {"name": self.methods[method]["method"]}
        algorithm |= {"local": scenario.local} if "local" in self._keys(method) else {}
        chosen = [parse_setting(f"{path}={json.dumps(value)}") for path, value in choice.items()]
        table = reduce(merged, [scenario.experiment, about, {"algorithm": algorithm}, *chosen])
        made: ExperimentSettings = structured(table, ExperimentSettings)
        return made

    def _keys(self, method: str) -> list[str]:
        """The settings that the table of a method may have."""
        name = self.methods[method]["method"]
        entry: Any = ALGORITHMS.get(name) or imported("--add", name)
        return known_keys(entry if isinstance(entry, type) else type(innermost(entry)))


def _named(option: str, given: str | None, known: Sequence[str]) -> Sequence[str]:
    names = known if given is None else [name.strip() for name in given.split(",")]
    for name in names:
        if name not in known:
            raise UsageError(f"{option}: {name!r} is not known; {nearest(name, known)}")
    return names


def best(choices: Sequence[Choice], values: Sequence[float | None]) -> Choice | None:
    """The choice with the highest value, the first of equal ones; None if no value is known."""
    known = [n for n, value in enumerate(values) if value is not None]
    return choices[max(known, key=lambda n: rounded(values[n] or 0.0))] if known else None
