"""What every method of a comparison came to for each client, and who is ahead of whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from umbel.algorithms import FedAvg, LocalOnly
from umbel.algorithms.base import Algorithm
from umbel.data.scenarios.base import Scenario
from umbel.report.paired import Gain, Interval, interval
from umbel.runs.folder import RunFolder
from umbel.runs.outcomes import Outcome, by_method, mean

BASELINES = ("local-only", "FedAvg")
"""What clients would have without a federation, and in one without clusters."""

SAME = 1e-6
"""A smaller difference is rounding."""


@dataclass(frozen=True)
class Contender:
    """A method, and how each client fares with it under each seed."""

    name: str
    baseline: str  # what clients compare others with, or nothing
    quality: float  # mean accuracy, or loss, over seeds and clients
    scenarios: Mapping[int, Scenario]  # by seed
    scores: Mapping[int, Mapping[str, float]]  # by seed and client; of finished runs


@dataclass(frozen=True)
class Standing:
    """The method with the best mean, and how far it is ahead of each other, the nearest first."""

    leader: Contender
    others: tuple[tuple[Contender, Interval | None], ...]  # None: no seed and client in common

    @property
    def doubtful(self) -> list[tuple[Contender, Interval | None]]:
        """The methods that the leader may be ahead of by chance."""
        return [each for each in self.others if each[1] is None or not each[1].ahead]


def contenders(folders: Sequence[RunFolder], by_loss: bool) -> list[Contender]:
    """The methods of these runs, the best last."""
    by_run = {(folder.experiment.name, folder.experiment.seed): folder for folder in folders}
    found = []
    for name, runs in by_method([Outcome.of(folder) for folder in folders]):
        mine = {run.seed: by_run[run.method, run.seed] for run in runs}
        experiments = {seed: folder.experiment for seed, folder in mine.items()}
        kinds = {_baseline(each.algorithm) for each in experiments.values()}
        quality = mean([run.last.loss if by_loss else run.last.accuracy for run in runs])
        scenarios = {seed: each.scenario for seed, each in experiments.items()}
        scores = {s: _scores(folder, by_loss) for s, folder in mine.items() if folder.finished}
        found.append(Contender(name, min(kinds), quality, scenarios, scores))
    return found


def gains(one: Contender, other: Contender, by_loss: bool) -> list[Gain]:
    """How much better `one` is than `other`, for each client and seed that both had."""
    found = []
    for seed in sorted(set(one.scores) & set(other.scores)):
        if one.scenarios[seed] != other.scenarios[seed]:
            continue  # clients of the same name, and other data
        before = other.scores[seed]
        for client, now in one.scores[seed].items():
            if client in before:
                gain = before[client] - now if by_loss else now - before[client]
                small = abs(gain) <= SAME * max(1.0, abs(now))
                found.append(Gain(client, seed, 0.0 if small else gain, now, before[client]))
    return found


def standing(methods: Sequence[Contender], by_loss: bool) -> Standing:
    """Who is ahead of whom, of methods of which the best is the last."""
    *rest, leader = methods
    pairs = [(other, gains(leader, other, by_loss)) for other in reversed(rest)]
    return Standing(leader, tuple((o, interval(found) if found else None) for o, found in pairs))


def _baseline(algorithm: Algorithm[Any]) -> str:
    """Which baseline a method is; a clustered method with one cluster is FedAvg, too."""
    local, federated = BASELINES
    if isinstance(algorithm, LocalOnly):
        return local
    one = isinstance(algorithm, FedAvg) or getattr(algorithm, "num_clusters", None) == 1
    return federated if one else ""


def _scores(folder: RunFolder, by_loss: bool) -> dict[str, float]:
    column = "loss" if by_loss else "accuracy"
    return {row["client"]: float(row[column]) for row in folder.clients() if row[column]}
