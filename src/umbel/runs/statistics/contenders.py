"""The results of every method of a comparison for each client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from umbel.data.scenarios.base import Scenario
from umbel.runs.outcomes import by_method, mean
from umbel.runs.result import Result
from umbel.runs.statistics.baselines import baseline_of
from umbel.runs.statistics.fairness import SAME, value_of
from umbel.runs.statistics.paired import Gain


@dataclass(frozen=True, kw_only=True)
class Contender:
    """A method, and how each client fares with it under each seed."""

    name: str
    baseline: str  # what clients compare others with, or nothing
    quality: float  # mean accuracy, or loss, over seeds and clients
    scenarios: Mapping[int, Scenario]  # by seed
    scores: Mapping[int, Mapping[str, float]]  # by seed and client; of finished runs


def contenders(runs: Sequence[Result], by_loss: bool) -> list[Contender]:
    """The methods of these runs, the best last."""
    methods = []
    for name, seeded in by_method(runs):
        kinds = {baseline_of(run.experiment) for run in seeded}
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


def _scores(run: Result, by_loss: bool) -> dict[str, float]:
    known = ((client.name, value_of(client, by_loss)) for client in run.clients)
    return {name: value for name, value in known if value is not None}
