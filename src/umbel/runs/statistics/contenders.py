"""Results of every method of a comparison for each client, and who is ahead of whom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from umbel.algorithms import FedAvg, LocalOnly
from umbel.algorithms.base import Algorithm
from umbel.algorithms.restarts import method_of
from umbel.data.scenarios.base import Scenario
from umbel.runs.outcomes import by_method, mean
from umbel.runs.result import Result
from umbel.runs.statistics.paired import Gain, Interval, interval

BASELINES = ("local-only", "FedAvg")
"""What clients would have without a federation, and in one without clusters."""

SAME = 1e-6
"""A smaller difference is rounding."""


@dataclass(frozen=True, kw_only=True)
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


def contenders(runs: Sequence[Result], by_loss: bool) -> list[Contender]:
    """The methods of these runs, the best last."""
    methods = []
    for name, seeded in by_method(runs):
        kinds = {_baseline(run.experiment.algorithm) for run in seeded}
        quality = mean([run.last.loss if by_loss else run.last.accuracy for run in seeded])
        scenarios = {run.experiment.seed: run.experiment.scenario for run in seeded}
        scores = {run.experiment.seed: _scores(run, by_loss) for run in seeded if run.finished}
        methods.append(
            Contender(
                name=name,
                baseline=min(kinds),
                quality=quality,
                scenarios=scenarios,
                scores=scores,
            )
        )
    return methods


def gains(one: Contender, other: Contender, by_loss: bool) -> list[Gain]:
    """How much better `one` is than `other`, for each client and seed that both had."""
    gained = []
    for seed in sorted(set(one.scores) & set(other.scores)):
        if one.scenarios[seed] != other.scenarios[seed]:
            continue  # clients of the same name, and other data
        before = other.scores[seed]
        for client, now in one.scores[seed].items():
            if client in before:
                gain = before[client] - now if by_loss else now - before[client]
                small = abs(gain) <= SAME * max(1.0, abs(now))
                value = 0.0 if small else gain
                with_other = before[client]
                gained.append(
                    Gain(client=client, seed=seed, value=value, now=now, before=with_other)
                )
    return gained


def standing(methods: Sequence[Contender], by_loss: bool) -> Standing:
    """Who is ahead of whom, of methods of which the best is the last."""
    *rest, leader = methods
    pairs = [(other, gains(leader, other, by_loss)) for other in reversed(rest)]
    return Standing(leader, tuple((o, interval(each) if each else None) for o, each in pairs))


def _baseline(algorithm: Algorithm[Any]) -> str:
    """Which baseline a method is; a clustered method with one cluster is FedAvg, too."""
    local, federated = BASELINES
    algorithm = method_of(algorithm)
    if isinstance(algorithm, LocalOnly):
        return local
    one = isinstance(algorithm, FedAvg) or getattr(algorithm, "num_clusters", None) == 1
    return federated if one else ""


def _scores(run: Result, by_loss: bool) -> dict[str, float]:
    known = ((client.name, client.loss if by_loss else client.accuracy) for client in run.clients)
    return {name: value for name, value in known if value is not None}
