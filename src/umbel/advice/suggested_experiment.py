"""The experiment that the answer suggests to run next."""

from __future__ import annotations

from dataclasses import replace

from umbel.advice.advice import Advice
from umbel.advice.adviser import FRACTION
from umbel.algorithms import FedAvg, FixedClusters, LocalOnly
from umbel.algorithms.base import Algorithm, State
from umbel.experiment.experiment import LONGEST_NAME, ExperimentSettings
from umbel.run.personal import Personal


def algorithm_of(advice: Advice) -> Algorithm[State]:
    """The method that the answer names, with the local training of the race."""
    verdict, local = advice.verdict, advice.local
    kind = verdict.chosen.contender.kind
    if kind == "clusters":
        numbers = tuple(verdict.clusters.tolist())
        return FixedClusters(clusters=numbers, clients=advice.names, local=local)
    if kind == "local":
        return LocalOnly(local=local)
    return FedAvg(local=local)


def next_experiment(advice: Advice, asked: ExperimentSettings) -> ExperimentSettings:
    """The experiment to run next on the data of `asked`."""
    chosen = advice.verdict.chosen
    trained = chosen.contender.base or chosen.contender
    base = next(each for each in advice.standings if each.contender == trained)
    return replace(
        asked,
        # Cut where it would be too long for a folder, between characters.
        name=f"advised-{asked.name}".encode()[:LONGEST_NAME].decode(errors="ignore"),
        description="what umbel advise found best",
        algorithm=algorithm_of(advice),
        seed=advice.seed,
        rounds=max(1, base.best_round),
        personal=_personal(advice),
    )


def _personal(advice: Advice) -> Personal | None:
    """How clients fine-tune, where that is advised: each chooses by its own validation examples."""
    if not advice.verdict.tuned:
        return None
    apart = None if advice.facts.validation else FRACTION
    local = advice.local
    return Personal(
        lr=local.lr,
        batch_size=local.batch_size,
        optimizer=local.optimizer,
        validation_fraction=apart,
    )
