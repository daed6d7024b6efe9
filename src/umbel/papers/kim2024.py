"""What the experiments of Kim et al. 2024 (CFL-GP) have in common: F.4 and F.5."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from umbel.algorithms import CFLGP, IFCA, Sattler
from umbel.algorithms.base import Algorithm
from umbel.client.work import Gradient, LocalTraining
from umbel.data.scenarios.base import Scenario
from umbel.networks import MLP
from umbel.papers.base import Published, Size, pick
from umbel.runs.experiment import Experiment
from umbel.server.aggregation import Averaging

Methods = Mapping[str, Algorithm[Any]]

LR = 0.1


def by_gradients(num_clusters: int, batch: int, patience: int | None = None) -> Methods:
    """The methods of Kim et al. 2024 where a round is one step on one mini-batch (Algorithm 1).

    IFCA's clients judge the models by the mini-batch they then step on, and a model's step is the
    mean over the clients that chose it, as CFL-GP's is.
    """
    gradient, local = Gradient(batch), LocalTraining(lr=LR)
    one_step = LocalTraining(lr=LR, steps=1, batch_size=batch)
    return {
        "CFL-GP": CFLGP(num_clusters, gradient=gradient, local=local, period=2, patience=patience),
        "IFCA": IFCA(num_clusters, one_step, Averaging("equal"), judge="mini-batch"),
        "MADMO": Sattler(local, send="gradient", gradient=gradient),
        "Global": CFLGP(1, gradient=gradient, local=local),
    }


def mnist(name: str, size: Size, scenario: Scenario, algorithm: Algorithm[Any]) -> Experiment:
    """An experiment of F.5: 200 rounds of a multi-layer perceptron."""
    rounds = pick(size, smoke=3, reduced=200, full=200)
    return Experiment(
        scenario,
        MLP((200,)),
        algorithm,
        name=name,
        description="Kim et al. 2024, F.5",
        rounds=rounds,
        evaluate_every=50,
        checkpoint_every=100,
    )


def pair(mean: float, spread: float, ari: float, ari_spread: float) -> tuple[Published, Published]:
    """Accuracy, or NMSE in decibels, and ARI, as a table prints them."""
    return Published(mean, spread), Published(ari, ari_spread)
