"""Kim et al. 2024, Table 1: larger networks, other data, and model averaging."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from umbel.algorithms import CFLGP, IFCA, FedAvg, Sattler
from umbel.algorithms.base import Algorithm
from umbel.client.optimizers import Adam
from umbel.client.work import LocalTraining
from umbel.data.scenarios import (
    EMNIST_DIRICHLET,
    PERMUTED_CIFAR10,
    ChannelState,
)
from umbel.data.scenarios.base import Scenario
from umbel.networks import CSIAutoencoder, LeNet, Model, ResNet18
from umbel.papers.base import (
    Cell,
    Course,
    Published,
    Reproduction,
    Size,
    pick,
    slug,
)
from umbel.papers.kim2024 import pair
from umbel.runs.experiment import Experiment
from umbel.server.aggregation import Averaging

Pair = tuple[Published, Published]
"""Accuracy, or NMSE in decibels, and ARI."""


def by_models(
    num_clusters: int,
    local: LocalTraining,
    period: int,
    compression: float = 1.0,
    shared: tuple[str, ...] = (),
    features: tuple[str, ...] = (),
) -> Mapping[str, Algorithm[Any]]:
    """The methods where clients train for an epoch a round (Algorithm 4)."""
    equal, weighted = Averaging("equal", shared), Averaging(shared=shared)
    return {
        "CFL-GP": CFLGP(
            num_clusters,
            "update",
            local=local,
            averaging=equal,
            period=period,
            compression=compression,
            parameters=features,
        ),
        "IFCA": IFCA(num_clusters, local, equal),
        "MADMO": Sattler(local, averaging=weighted),
        "FedAvg": FedAvg(local),
    }


def _cells(
    prefix: str,
    column: str,
    scenario: Scenario,
    model: Model,
    methods: Mapping[str, Algorithm[Any]],
    rounds: int,
    published: Mapping[str, Pair],
    measure: str,
) -> Iterator[Cell]:
    for row, method in methods.items():
        made = Experiment(
            scenario,
            model,
            method,
            name=slug(prefix, column, row),
            description="Kim et al. 2024, Table 1",
            rounds=rounds,
            evaluate_every=5,
            checkpoint_every=25,
        )
        quality, ari = published[row]
        yield Cell(row, column, made, {measure: quality, "ari": ari})


EMNIST: Mapping[int, Mapping[str, Pair]] = {
    10: {
        "CFL-GP": pair(82.28, 0.30, 1.0, 0.0),
        "IFCA": pair(78.68, 5.41, 0.71, 0.45),
        "MADMO": pair(76.73, 5.89, 0.53, 0.47),
        "FedAvg": pair(70.09, 0.78, 0.0, 0.0),
    },
    80: {
        "CFL-GP": pair(79.11, 0.34, 1.0, 0.0),
        "IFCA": pair(77.52, 4.62, 0.86, 0.35),
        "MADMO": pair(78.30, 0.52, 0.74, 0.09),
        "FedAvg": pair(65.77, 0.56, 0.0, 0.0),
    },
    160: {
        "CFL-GP": pair(76.73, 0.24, 1.0, 0.0),
        "IFCA": pair(76.55, 0.21, 1.0, 0.0),
        "MADMO": pair(75.07, 0.52, 0.40, 0.15),
        "FedAvg": pair(66.23, 0.71, 0.0, 0.0),
    },
}


def _emnist(size: Size) -> Iterator[Cell]:
    for clients in pick(size, smoke=(10,), reduced=(10, 80), full=(10, 80, 160)):
        few = pick(size, smoke=(20,), reduced=(8_000 // clients,), full=())
        batch = pick(size, smoke=10, reduced=50, full=200)
        local = LocalTraining(lr=0.1, epochs=1, batch_size=batch)
        yield from _cells(
            "emnist-dirichlet",
            f"C = {clients}",
            replace(EMNIST_DIRICHLET, clients=clients, examples=few),
            LeNet(),
            by_models(2, local, period=2),
            pick(size, smoke=2, reduced=40, full=100),
            EMNIST[clients],
            "accuracy",
        )


CIFAR: Mapping[int, Mapping[str, Pair]] = {
    20: {
        "CFL-GP": pair(73.93, 0.50, 1.0, 0.0),
        "IFCA": pair(73.97, 0.37, 1.0, 0.0),
        "MADMO": pair(68.42, 2.14, 0.27, 0.27),
        "FedAvg": pair(70.75, 1.10, 0.0, 0.0),
    },
    40: {
        "CFL-GP": pair(72.16, 0.33, 1.0, 0.0),
        "IFCA": pair(72.15, 0.33, 1.0, 0.0),
        "MADMO": pair(65.56, 2.36, 0.14, 0.17),
        "FedAvg": pair(65.59, 2.91, 0.0, 0.0),
    },
    80: {
        "CFL-GP": pair(70.49, 0.35, 1.0, 0.0),
        "IFCA": pair(70.32, 0.32, 1.0, 0.0),
        "MADMO": pair(52.53, 7.44, 0.0, 0.0),
        "FedAvg": pair(52.48, 8.15, 0.0, 0.0),
    },
}


def _resnet(size: Size) -> Iterator[Cell]:
    model = pick(size, smoke=LeNet(), reduced=LeNet(), full=ResNet18())
    rate = pick(size, smoke=0.001, reduced=0.001, full=0.01)
    local = LocalTraining(lr=rate, epochs=1, batch_size=100, optimizer=Adam())
    *trunk, last = _layers(model)
    for clients in pick(size, smoke=(20,), reduced=(20,), full=(20, 40, 80)):
        few = pick(size, smoke=(12,), reduced=(600,), full=())
        yield from _cells(
            "cifar10-permuted",
            f"C = {clients}",
            replace(PERMUTED_CIFAR10, clients=clients, examples=few),
            model,
            by_models(2, local, period=2, shared=tuple(trunk), features=(last,)),
            pick(size, smoke=2, reduced=60, full=300),
            CIFAR[clients],
            "accuracy",
        )


def _layers(model: Model) -> list[str]:
    """Patterns of the names of each layer's parameters."""
    names = [name for name, _ in model.build((3, 32, 32), 10).named_parameters()]
    return list(dict.fromkeys(f"{name.partition('.')[0]}.*" for name in names))


CSI: Mapping[int, Mapping[str, Pair]] = {
    16: {
        "CFL-GP": pair(-19.38, 0.003, 1.0, 0.0),
        "IFCA": pair(-15.83, 0.006, -0.01, 0.01),
        "MADMO": pair(-17.63, 0.01, 0.5, 0.5),
        "FedAvg": pair(-14.57, 0.006, 0.0, 0.0),
    },
}


def _channels(size: Size) -> Iterator[Cell]:
    local = LocalTraining(
        lr=0.002, epochs=1, batch_size=pick(size, smoke=8, reduced=20, full=200), optimizer=Adam()
    )
    model = CSIAutoencoder(
        code=pick(size, smoke=16, reduced=64, full=1024),
        norm=pick(size, smoke="group", reduced="group", full="batch"),
    )
    scenario = ChannelState(
        clients=pick(size, smoke=4, reduced=8, full=16),
        examples=pick(size, smoke=8, reduced=200, full=12_500),
    )
    methods = by_models(2, local, period=5, compression=100.0, shared=("encoder.*",))
    rounds = pick(size, smoke=2, reduced=40, full=2000)
    yield from _cells("channels", "C = 16", scenario, model, methods, rounds, CSI[16], "nmse")


REPRODUCTIONS = (
    Reproduction(
        "cflgp-table1-csi",
        "Kim et al. 2024, Table 1, Exp 1",
        "Compression of channel states by autoencoders that share an encoder",
        lambda size: list(_channels(size)),
        ("nmse", "ari"),
        {"smoke": 1, "reduced": 1, "full": 5},
        (Course("nmse"), Course("ari")),
        "16 clients, half indoors and half outdoors, 12,500 matrices each, codes of 1,024 numbers, "
        "2,000 rounds of an epoch of Adam with 0.002 in batches of 200, features of a hundredth of "
        "the model gap. COST2100's matrices where the user has them; otherwise channels are "
        "generated, so that numbers can't be the paper's, only their order. The learning rate does "
        "not follow the paper's cosine schedule",
        "8 clients with 200 matrices, codes of 64 numbers, groups of channels normalised in place "
        "of batches, batches of 20, 40 rounds",
    ),
    Reproduction(
        "cflgp-table1-resnet",
        "Kim et al. 2024, Table 1, Exp 2",
        "CIFAR-10 with permuted labels: a shared trunk, and a last layer for each cluster",
        lambda size: list(_resnet(size)),
        ("accuracy", "ari"),
        {"smoke": 1, "reduced": 1, "full": 5},
        (Course("accuracy"), Course("ari")),
        "20 to 80 clients, half of which call label y (y + 5) mod 10; ResNet18 whose last layer "
        "alone is a cluster's own, and what features are made of; 300 rounds of an epoch of Adam "
        "with 0.01 in batches of 100",
        "20 clients with 600 images, LeNet, Adam with 0.001, 60 rounds",
        needs=("cifar10",),
    ),
    Reproduction(
        "cflgp-table1-emnist",
        "Kim et al. 2024, Table 1, Exp 3",
        "EMNIST upright and upside down, with labels from a Dirichlet distribution",
        lambda size: list(_emnist(size)),
        ("accuracy", "ari"),
        {"smoke": 1, "reduced": 1, "full": 5},
        (Course("accuracy"), Course("ari")),
        "10 to 160 clients share EMNIST, half of it turned by 180 degrees; LeNet, 100 rounds of an "
        "epoch in batches of 200, learning rate 0.1, P = 2",
        "10 and 80 clients share 8,000 images, batches of 50, 40 rounds",
        needs=("emnist",),
    ),
)
