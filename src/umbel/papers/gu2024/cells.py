"""LCFL compared with other methods, and with three metrics: Tables II and III, Figs. 2 to 5."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any, Literal

from umbel.algorithms import IFCA, FedAvg, LocalOnly
from umbel.algorithms.base import Algorithm
from umbel.client.work import LocalTraining
from umbel.data.scenarios.gu import CONSECUTIVE_LETTERS, ROTATED_CIFAR10
from umbel.experiment.experiment import ExperimentSettings
from umbel.networks import MLP, LeNet
from umbel.papers.base import Cell, Reproduction, RoundsPlot, Size, cells, pick, shipped, slug
from umbel.papers.findings import findings

Methods = Mapping[str, Algorithm[Any]]
Kind = Literal["methods", "metrics"]

FULL = "lcfl-federated-1200"
"""The package's experiment of Table II: five rounds of FedAvg, then what clients trained last."""

AS_PRINTED = "LCFL (Algorithm 1 as printed)"

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


def _as_printed(local: LocalTraining, clusters: int) -> Algorithm[Any]:
    """Lines 2 to 5 of Algorithm 1: T = 10 full gradient steps of each client from one start."""
    alone = LocalTraining(lr=local.lr, steps=10, batch_size="all")
    usual: Any = _methods("methods", local, clusters)["LCFL"]
    printed: Algorithm[Any] = replace(usual, warm_up="local", warm_up_training=alone)
    return printed


def _beside(methods: Methods, local: LocalTraining, clusters: int) -> Methods:
    """A table's rows, and those that cluster once more with another k."""
    other = _methods("methods", local, clusters)
    return {**methods, **{f"{row} (k = {clusters})": other[row] for row in ("LCFL", "IFCA")}}


def _cells(size: Size, methods: Methods, experiment: ExperimentSettings, column: str) -> list[Cell]:
    model = MLP((16,)) if size == "smoke" else experiment.model
    sized = replace(experiment, model=model, description="Gu et al. 2024, V", evaluate_every=5)
    return cells(sized, methods, column, slug("lcfl", column))


def _table2(size: Size) -> list[Cell]:
    """The columns; at full size also with a tenth of the clients, and with half of the rounds."""
    if size != "full":
        return _rotated_mnist(size)
    return [*_rotated_mnist(size, part=10), *_halfway(), *_rotated_mnist(size)]


def _halfway() -> list[Cell]:
    """The paper's clients for 30 of its 60 rounds, with the k of the authors' files."""
    whole = _rotated_mnist("full")
    sooner = replace(whole[0].experiment, rounds=30)
    methods = {cell.row: cell.experiment.algorithm for cell in whole if "(" not in cell.row}
    return _cells("full", methods, sooner, f"{whole[0].column}, 30 rounds")


def _rotated_mnist(
    size: Size, kind: Kind = "methods", name: str = FULL, part: int = 1
) -> list[Cell]:
    """The cells of a column; at full size it has the clients of the experiment over `part`."""
    full = shipped(name)
    scenario: Any = full.scenario
    usual: Any = full.algorithm
    methods = _methods(kind, usual.local, usual.num_clusters)
    if kind == "methods" and name == FULL and size != "reduced":  # too few clients for k = 10
        printed = {AS_PRINTED: _as_printed(usual.local, usual.num_clusters)}
        methods = {**_beside(methods, usual.local, 10), **printed}
    few = replace(scenario, clients=12, examples=(20,), test_split=None)
    fewer = replace(scenario, clients=scenario.clients // 60)
    whole = replace(scenario, clients=scenario.clients // part)
    experiment = replace(
        full,
        scenario=pick(size, smoke=few, reduced=fewer, full=whole),
        algorithm=methods["LCFL"],
        rounds=pick(size, smoke=6, reduced=15, full=full.rounds),
        checkpoint_every=5,
    )
    clients = pick(size, smoke=fewer, reduced=fewer, full=whole).clients
    return _cells(size, methods, experiment, f"m = {clients}")


def _letters(size: Size, kind: Kind) -> list[Cell]:
    local = LocalTraining(lr=0.03, epochs=5, batch_size=20)
    methods = _methods(kind, local, clusters=10)
    if kind == "methods":
        methods = {**_beside(methods, local, 5), AS_PRINTED: _as_printed(local, 10)}
    clients = pick(size, smoke=12, reduced=50, full=200)
    experiment = replace(
        shipped(FULL),
        scenario=replace(CONSECUTIVE_LETTERS, clients=clients),
        algorithm=methods["LCFL"],
        rounds=pick(size, smoke=6, reduced=40, full=100),
        participation=0.3,
        checkpoint_every=20,
    )
    return _cells(size, methods, experiment, "letters a to j")


def _photos(size: Size) -> list[Cell]:
    local = LocalTraining(lr=0.03, epochs=5, batch_size=20, lr_decay=0.99)
    methods = {**_methods("methods", local, clusters=2), AS_PRINTED: _as_printed(local, 2)}
    scenario = replace(
        ROTATED_CIFAR10,
        clients=pick(size, smoke=8, reduced=40, full=200),
        examples=pick(size, smoke=(20,), reduced=(250,), full=()),
        test_split=pick(size, smoke=None, reduced="test", full="test"),
        standardise=True,
    )
    experiment = replace(
        shipped(FULL),
        scenario=scenario,
        model=LeNet(),
        algorithm=methods["LCFL"],
        rounds=pick(size, smoke=6, reduced=60, full=200),
        participation=0.1,
        checkpoint_every=20,
    )
    return _cells(size, methods, experiment, "rotated CIFAR-10")


BY_ROUND = (*(f"accuracy@{at}" for at in (5, 10, 15, 30, 60)), "ari", "clusters")
AT_ROUND_30 = ("accuracy@30", "accuracy", "ari", "clusters")
PLOTS = (RoundsPlot("accuracy"),)
SAID = findings()

REPRODUCTIONS = (
    Reproduction(SAID["lcfl-table2"], _table2, BY_ROUND, PLOTS),
    Reproduction(
        SAID["lcfl-table3"], partial(_rotated_mnist, name="lcfl-federated-2400"), BY_ROUND, PLOTS
    ),
    Reproduction(
        SAID["lcfl-fig3"],
        partial(_rotated_mnist, kind="metrics"),
        ("accuracy@10", "accuracy@30", "accuracy@60", "ari", "clusters"),
        PLOTS,
    ),
    Reproduction(SAID["lcfl-fig2"], partial(_letters, kind="metrics"), AT_ROUND_30, PLOTS),
    Reproduction(SAID["lcfl-fig4"], partial(_letters, kind="methods"), AT_ROUND_30, PLOTS),
    Reproduction(SAID["lcfl-fig5"], _photos, AT_ROUND_30, PLOTS),
)
