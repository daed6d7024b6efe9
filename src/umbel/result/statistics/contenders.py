"""The results of every method of a comparison for each client."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite

from umbel.result.outcomes import by_method, mean, rounded
from umbel.result.run import Result
from umbel.result.statistics.baselines import baseline_of
from umbel.result.statistics.data import Data, warn_of_others
from umbel.result.statistics.fairness import SAME, magnitude
from umbel.result.statistics.measures import Measure
from umbel.result.statistics.paired import Gain


@dataclass(frozen=True, kw_only=True)
class ComparedMethod:
    """A method, and how each client fares with it under each seed."""

    name: str
    baseline: str  # what clients compare others with, or nothing
    quality: float  # mean of the measure over seeds and clients
    data: Mapping[int, Data]  # by seed
    scores: Mapping[int, Mapping[str, float]]  # by seed and client; of finished runs


def contenders(runs: Sequence[Result], measure: Measure) -> list[ComparedMethod]:
    """Return the methods of these runs, the best last; warn if their examples differ."""
    warn_of_others(runs)
    methods = []
    for name, seeded in by_method(runs):
        kinds = {baseline_of(run.experiment) for run in seeded}
        quality = mean([measure.of_record(run.so_far) for run in seeded])
        data = {run.experiment.seed: Data.of(run) for run in seeded}
        scores = {
            run.experiment.seed: {
                client.name: value
                for client in run.clients
                if (value := measure.of_client(client)) is not None
            }
            for run in seeded
            if run.finished
        }
        methods.append(
            ComparedMethod(
                name=name,
                baseline=min(kinds),
                quality=quality,
                data=data,
                scores=scores,
            )
        )
    sign = -1 if measure.lower else 1
    # What is not known comes first.
    return sorted(methods, key=lambda m: (isfinite(m.quality), rounded(sign * m.quality)))


def gains(one: ComparedMethod, other: ComparedMethod, measure: Measure) -> list[Gain]:
    """Return the gains of `one` over `other`, for each client and seed that both had."""
    gained = []
    for seed in sorted(set(one.scores) & set(other.scores)):
        if not one.data[seed].is_like(other.data[seed]):
            continue  # clients of the same name, and other data
        mine, others = one.scores[seed], other.scores[seed]
        usual = magnitude((*mine.values(), *others.values()))
        for client, now in mine.items():
            if client in others:
                before = others[client]
                gain = before - now if measure.lower else now - before
                value = 0.0 if abs(gain) <= SAME * max(usual, abs(now)) else gain
                gained.append(Gain(client=client, seed=seed, value=value, now=now, before=before))
    return gained
