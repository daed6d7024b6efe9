"""Gu et al. 2024, Figs. 2, 4 and 5: letters, and rotated CIFAR-10."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from umbel.algorithms import IFCA, FedAvg, LocalOnly
from umbel.algorithms.base import Algorithm
from umbel.client.work import LocalTraining
from umbel.data.scenarios import LETTERS, ROTATED_CIFAR10
from umbel.data.scenarios.base import Scenario
from umbel.networks import CNN, MLP
from umbel.papers.base import Cell, Course, Reproduction, Size, pick, slug
from umbel.papers.gu2024 import SEEDS, clusters_at, lcfl
from umbel.runs.experiment import Experiment

Methods = Mapping[str, Algorithm[Any]]

LETTERS_LOCAL = LocalTraining(lr=0.03, epochs=5, batch_size=20, lr_decay=0.99)
CIFAR_LOCAL = LocalTraining(lr=0.02, epochs=5, batch_size=20, lr_decay=0.99)
"""Table I."""


def _metrics(clusters: int, local: LocalTraining) -> Methods:
    metrics = {"LCFL": "loss", "DiffNorm": "parameters", "Gradcos": "gradient"}
    return {row: lcfl(clusters, local, kind) for row, kind in metrics.items()}


def _compared(clusters: int, local: LocalTraining) -> Methods:
    return {
        "LCFL": lcfl(clusters, local),
        "IFCA": IFCA(clusters, local),
        "FedAvg": FedAvg(local),
        "Local": LocalOnly(local),
    }


def _letters(size: Size, methods: Methods) -> list[Cell]:
    clients = pick(size, smoke=8, reduced=100, full=200)
    few = pick(size, smoke=(20,), reduced=(), full=())
    scenario = replace(LETTERS, clients=clients, examples=few)
    return _cells(size, "letters a to j", scenario, methods, 0.3, 100)


def _photos(size: Size, methods: Methods) -> list[Cell]:
    clients = pick(size, smoke=8, reduced=40, full=200)
    few = pick(size, smoke=(20,), reduced=(250,), full=())
    split = pick(size, smoke=None, reduced="test", full="test")
    scenario = replace(ROTATED_CIFAR10, clients=clients, examples=few, test_split=split)
    return _cells(size, "rotated CIFAR-10", scenario, methods, 0.1, 200)


def _cells(
    size: Size, column: str, scenario: Scenario, methods: Methods, share: float, rounds: int
) -> list[Cell]:
    return [
        Cell(
            row,
            column,
            Experiment(
                scenario,
                pick(size, smoke=MLP((16,)), reduced=MLP(), full=CNN()),
                method,
                name=slug("lcfl", column, row),
                description="Gu et al. 2024, V",
                rounds=pick(size, smoke=6, reduced=60, full=rounds),
                participation=share,
                evaluate_every=5,
                checkpoint_every=20,
            ),
        )
        for row, method in methods.items()
    ]


def _fig_2(size: Size) -> list[Cell]:
    return _letters(size, _metrics(clusters_at(size), LETTERS_LOCAL))


def _fig_4(size: Size) -> list[Cell]:
    return _letters(size, _compared(clusters_at(size), LETTERS_LOCAL))


def _fig_5(size: Size) -> list[Cell]:
    return _photos(size, _compared(clusters_at(size), CIFAR_LOCAL))


OTHERS = (
    "{}, five local epochs, batch 20, k = 10 (Table I); the CNN of FLACC; the figure's numbers "
    "are not printed"
)

OTHERS_REDUCED = "{}, an MLP 784-200-10, 60 rounds"

REPRODUCTIONS = (
    Reproduction(
        "lcfl-fig2",
        "Gu et al. 2024, Fig. 2",
        "Letters a to j, three a device: three ways to tell clients apart",
        _fig_2,
        ("accuracy@30", "accuracy", "clusters"),
        SEEDS,
        (Course("accuracy"),),
        OTHERS.format("200 devices hold three of ten letters, 30% of them a round, 100 rounds"),
        OTHERS_REDUCED.format("100 devices"),
        needs=("emnist",),
    ),
    Reproduction(
        "lcfl-fig4",
        "Gu et al. 2024, Fig. 4",
        "Letters a to j, three a device: LCFL beside IFCA, FedAvg and local training",
        _fig_4,
        ("accuracy@30", "accuracy", "clusters"),
        SEEDS,
        (Course("accuracy"),),
        OTHERS.format("As Fig. 2"),
        OTHERS_REDUCED.format("100 devices"),
        needs=("emnist",),
        remarks="LCFL comes before IFCA and FedAvg, as in the paper. Local training comes first "
        "here: a device has three letters only, which are easily told apart, and no others.",
    ),
    Reproduction(
        "lcfl-fig5",
        "Gu et al. 2024, Fig. 5",
        "CIFAR-10 upright and upside down: LCFL beside IFCA, FedAvg and local training",
        _fig_5,
        ("accuracy@30", "accuracy", "ari", "clusters"),
        SEEDS,
        (Course("accuracy"),),
        OTHERS.format("200 clients, 10% of them a round, 200 rounds, learning rate 0.02"),
        OTHERS_REDUCED.format("40 clients with 250 images"),
        needs=("cifar10",),
        remarks="With k = 10 LCFL divides 40 clients into clusters of about four, with few images "
        "each, while IFCA leaves eight of its ten models to nobody and finds the two groups: at "
        "reduced size this puts IFCA first. The paper's clusters are five times as large.",
    ),
)
