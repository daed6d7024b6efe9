"""Paths of settings in an experiment, such as `algorithm.local.lr`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from types import NoneType
from typing import Any, get_args

from umbel.algorithms import ALGORITHMS
from umbel.algorithms.base import Algorithm
from umbel.client.optimizers import OPTIMIZERS, Optimizer
from umbel.client.schedules import SCHEDULES, Schedule
from umbel.client.work import WORKS, Work
from umbel.client.work.schemes import SCHEMES, Scheme
from umbel.data.scenarios import SCENARIOS
from umbel.data.scenarios.base import Scenario
from umbel.data.shifts import SHIFTS, Shift
from umbel.experiment.experiment import ExperimentSettings
from umbel.help.synonyms import same
from umbel.networks import MODELS, Model
from umbel.run.participation import PARTICIPATIONS, Participation
from umbel.run.wrappers import WRAPPERS
from umbel.server.aggregation import RULES
from umbel.server.averaging_rules import AveragingRule
from umbel.server.clusterers import CLUSTERERS, Clusterer
from umbel.settings import Settings, bare, declared, members_of

REGISTRIES: Mapping[type, Mapping[str, Any]] = {
    Algorithm: ALGORITHMS,
    Scenario: SCENARIOS,
    Model: MODELS,
    Shift: SHIFTS,
    Optimizer: OPTIMIZERS,
    Schedule: SCHEDULES,
    Scheme: SCHEMES,
    Clusterer: CLUSTERERS,
    Work: WORKS,
    AveragingRule: RULES,
    Participation: PARTICIPATIONS,
}
"""For each kind of table, the classes that its `name` can stand for."""


@dataclass(frozen=True)
class TableOf:
    """A table of an experiment, with the dataclass whose fields are its keys."""

    path: str  # "" for the experiment itself
    kind: Any
    names: tuple[str, ...] = ()  # values of the table's `name` that stand for this class
    optional: bool = False  # whether there is no such table by default
    count: int = 1  # in how many tables around it it can be

    def full(self, key: str) -> str:
        """The path of one of its keys."""
        return f"{self.path}.{key}" if self.path else key


@cache
def tables() -> tuple[TableOf, ...]:
    """Every table that an experiment may have, outer ones first."""
    every = list(_below(TableOf("", ExperimentSettings), ()))
    counts = Counter((table.path, table.kind) for table in every)
    found = {(t.path, t.kind): replace(t, count=counts[t.path, t.kind]) for t in reversed(every)}
    wrappers = [TableOf("algorithm", kind, ("any method",)) for kind in WRAPPERS]
    return tuple(sorted([*found.values(), *wrappers], key=lambda table: table.path.count(".")))


def _below(table: TableOf, within: tuple[type, ...]) -> Iterator[TableOf]:
    yield table
    for field in declared(table.kind):
        for kind in _classes(field.kind):
            for inner, names in _meant(kind):
                if inner not in within:
                    path = table.full(field.name)
                    optional = table.optional or NoneType in members_of(field.kind)
                    yield from _below(TableOf(path, inner, names, optional), (*within, inner))


def _classes(kind: Any) -> Iterator[Any]:
    """The classes of a field's type, of the items of a list as well."""
    for member in members_of(kind):
        yield from _classes(get_args(member)[0]) if bare(member) is tuple else [bare(member)]


def _meant(kind: Any) -> Iterator[tuple[type[Any], tuple[str, ...]]]:
    """The classes that a table of this declared type can stand for, each with its names."""
    if kind in REGISTRIES:
        classes = {
            name: each if isinstance(each, type) else type(each)
            for name, each in REGISTRIES[kind].items()
        }
        for each in dict.fromkeys(classes.values()):
            yield each, tuple(name for name, other in classes.items() if other is each)
    elif isinstance(kind, type) and issubclass(kind, Settings):
        yield kind, ()


def path_of_setting(path: str) -> str | None:
    """The path that is most likely meant by a wrong one: within its table if it can be there.

    A setting whose value is itself a table with a name, such as `model`, is set by that name.
    """
    within, _, word = path.rpartition(".")
    found = []
    for table in tables():
        known = {f.name: f for f in declared(table.kind)}
        key = same(word, known)
        if key is not None and table.full(key).startswith(within):
            full = table.full(key)
            kinds = [*_classes(known[key].kind)]
            named = any(kind in REGISTRIES for kind in kinds) and float not in kinds
            rank = key != word, table.optional, full.count("."), -table.count, -len(table.names)
            found.append((rank, f"{full}.name" if named else full))
    if not found:
        return path_of_setting(word) if within else None
    return min(found)[1]


def owners(path: str) -> tuple[str, ...]:
    """The names of the methods, networks or others that have the setting at this path."""
    above, _, key = path.rpartition(".")
    having = [t for t in tables() if t.path == above and key in {f.name for f in declared(t.kind)}]
    return tuple(dict.fromkeys(name for table in having for name in table.names))
