"""LCFL beside other methods, and by three metrics: Tables II and III, Figs. 2 to 5."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from umbel.algorithms import IFCA, FedAvg, LocalOnly
from umbel.algorithms.base import Algorithm
from umbel.client.work import LocalTraining
from umbel.data.scenarios import LETTERS, ROTATED_CIFAR10
from umbel.data.scenarios.base import Scenario
from umbel.networks import MLP
from umbel.papers.base import Cell, Reproduction, RoundsPlot, Size, cells, pick, shipped, slug
from umbel.papers.findings import findings
from umbel.runs.experiment import Experiment

Methods = Mapping[str, Algorithm[Any]]
Kind = Literal["methods", "metrics"]

FULL = "lcfl-federated-1200"
"""The package's experiment of Table II: five rounds of FedAvg, then what clients trained last."""

METRICS = {"LCFL": "loss", "DiffNorm": "parameters", "Gradcos": "gradient"}


def _methods(kind: Kind, local: LocalTraining, clusters: int) -> Methods:
    """The rows of a table, with k for k-medoids and IFCA."""
    usual: Any = shipped(FULL).algorithm
    lcfl = replace(usual, local=local, num_clusters=clusters)
    if kind == "metrics":
        return {row: replace(lcfl, metric=metric) for row, metric in METRICS.items()}
    return {
        "LCFL": lcfl,
        "IFCA": IFCA(clusters, local),
        "FedAvg": FedAvg(local),
        "Local": LocalOnly(local),
    }


def _clusters(size: Size) -> int:
    return pick(size, smoke=4, reduced=10, full=10)


def _cells(size: Size, methods: Methods, experiment: Experiment, column: str) -> list[Cell]:
    model = pick(size, smoke=MLP((16,)), reduced=MLP(), full=experiment.model)
    sized = replace(experiment, model=model, description="Gu et al. 2024, V", evaluate_every=5)
    return cells(sized, methods, column, slug("lcfl", column))


def _rotated_mnist(size: Size, kind: Kind = "methods", name: str = FULL) -> list[Cell]:
    full = shipped(name)
    scenario: Any = full.scenario
    usual: Any = full.algorithm
    methods = _methods(kind, usual.local, _clusters(size))
    if kind == "methods" and name == FULL:
        four = _methods(kind, usual.local, 4)
        methods = {**methods, **{f"{row} (k = 4)": four[row] for row in ("LCFL", "IFCA")}}
    few = replace(scenario, clients=8, examples=(20,), test_split=None)
    tenth = replace(scenario, clients=scenario.clients // 10)
    experiment = replace(
        full,
        scenario=pick(size, smoke=few, reduced=tenth, full=scenario),
        algorithm=methods["LCFL"],
        rounds=pick(size, smoke=6, reduced=30, full=full.rounds),
        checkpoint_every=10,
    )
    clients = pick(size, smoke=tenth, reduced=tenth, full=scenario).clients
    return _cells(size, methods, experiment, f"m = {clients}")


def _partly(
    size: Size, kind: Kind, column: str, scenario: Scenario, lr: float, share: float, rounds: int
) -> list[Cell]:
    """A share of the clients a round, trained as Table I says."""
    local = LocalTraining(lr=lr, epochs=5, batch_size=20, lr_decay=0.99)
    methods = _methods(kind, local, _clusters(size))
    experiment = replace(
        shipped(FULL),
        scenario=scenario,
        algorithm=methods["LCFL"],
        rounds=pick(size, smoke=6, reduced=60, full=rounds),
        participation=share,
        checkpoint_every=20,
    )
    return _cells(size, methods, experiment, column)


def _letters(size: Size, kind: Kind) -> list[Cell]:
    scenario = replace(
        LETTERS,
        clients=pick(size, smoke=8, reduced=100, full=200),
        examples=pick(size, smoke=(20,), reduced=(), full=()),
    )
    return _partly(size, kind, "letters a to j", scenario, lr=0.03, share=0.3, rounds=100)


def _photos(size: Size) -> list[Cell]:
    scenario = replace(
        ROTATED_CIFAR10,
        clients=pick(size, smoke=8, reduced=40, full=200),
        examples=pick(size, smoke=(20,), reduced=(250,), full=()),
        test_split=pick(size, smoke=None, reduced="test", full="test"),
    )
    return _partly(size, "methods", "rotated CIFAR-10", scenario, lr=0.02, share=0.1, rounds=200)


BY_ROUND = (*(f"accuracy@{at}" for at in (5, 10, 15, 30, 60)), "ari", "clusters")
PLOTS = (RoundsPlot("accuracy"),)
SAID = findings()

REPRODUCTIONS = (
    Reproduction(SAID["lcfl-table2"], _rotated_mnist, BY_ROUND, PLOTS, needs=("mnist",)),
    Reproduction(
        SAID["lcfl-table3"],
        partial(_rotated_mnist, name="lcfl-federated-2400"),
        BY_ROUND,
        PLOTS,
        needs=("mnist",),
    ),
    Reproduction(
        SAID["lcfl-fig3"],
        partial(_rotated_mnist, kind="metrics"),
        ("accuracy@10", "accuracy@30", "accuracy@60", "ari", "clusters"),
        PLOTS,
        needs=("mnist",),
    ),
    Reproduction(
        SAID["lcfl-fig2"],
        partial(_letters, kind="metrics"),
        ("accuracy@30", "accuracy", "clusters"),
        PLOTS,
        needs=("emnist",),
    ),
    Reproduction(
        SAID["lcfl-fig4"],
        partial(_letters, kind="methods"),
        ("accuracy@30", "accuracy", "clusters"),
        PLOTS,
        needs=("emnist",),
    ),
    Reproduction(
        SAID["lcfl-fig5"],
        _photos,
        ("accuracy@30", "accuracy", "ari", "clusters"),
        PLOTS,
        needs=("cifar10",),
    ),
)
