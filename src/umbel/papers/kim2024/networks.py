"""Larger networks, other data, and model averaging: Table 1."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any

from umbel.algorithms import CFLGP, IFCA, FedAvg, Sattler
from umbel.algorithms.base import Algorithm
from umbel.client.optimizers import Adam
from umbel.client.schedules import Constant, CosineRestarts
from umbel.client.work import LocalTraining
from umbel.data.scenarios.base import Scenario
from umbel.data.scenarios.channel_state import ChannelState
from umbel.data.scenarios.kim import EMNIST_DIRICHLET, PERMUTED_CIFAR10
from umbel.experiment.experiment import ExperimentSettings
from umbel.networks import CSIAutoencoder, LeNet, Model, ResNet18
from umbel.papers.base import (
    Cell,
    ColumnsPlot,
    Reproduction,
    RoundsPlot,
    Size,
    cells,
    number_of,
    pick,
    slug,
)
from umbel.papers.findings import findings
from umbel.server.aggregation import Averaging


def _column(
    prefix: str, clients: int, scenario: Scenario, model: Model, rounds: int, cfl_gp: CFLGP
) -> list[Cell]:
    """The methods with clients that train for an epoch per round, like CFL-GP's (Algorithm 4)."""
    local, shared = cfl_gp.local, cfl_gp.averaging.shared
    methods: dict[str, Algorithm[Any]] = {
        "CFL-GP": cfl_gp,
        "IFCA": IFCA(cfl_gp.num_clusters, local, cfl_gp.averaging),
        "MADMO": Sattler(local, averaging=Averaging(shared=shared)),
        "FedAvg": FedAvg(local),
    }
    experiment = ExperimentSettings(
        scenario,
        model,
        cfl_gp,
        description="Kim et al. 2024, Table 1",
        rounds=rounds,
        evaluate_every=5,
        checkpoint_every=25,
    )
    column = f"C = {clients}"
    return cells(experiment, methods, column, slug(prefix, column))


def _emnist(size: Size) -> Iterator[Cell]:
    for clients in pick(size, smoke=(10,), reduced=(10, 80), full=(10, 80, 160)):
        few = pick(size, smoke=(20,), reduced=(16_000 // clients,), full=())
        batch = pick(size, smoke=10, reduced=10, full=200)
        local = LocalTraining(lr=0.1, epochs=1, batch_size=batch)
        yield from _column(
            "emnist-dirichlet",
            clients,
            replace(EMNIST_DIRICHLET, clients=clients, examples=few),
            LeNet(),
            pick(size, smoke=2, reduced=60, full=100),
            CFLGP(2, "update", local=local, averaging=Averaging("equal"), period=2),
        )


def _resnet(size: Size) -> Iterator[Cell]:
    model = pick(size, smoke=LeNet(), reduced=LeNet(), full=ResNet18(norm="batch"))
    rate = pick(size, smoke=0.001, reduced=0.001, full=0.01)
    names = [name for name, _ in model.build((3, 32, 32), 10).named_parameters()]
    *trunk, last = dict.fromkeys(f"{name.partition('.')[0]}.*" for name in names)  # layers
    cfl_gp = CFLGP(
        2,
        "update",
        local=LocalTraining(lr=rate, epochs=1, batch_size=100, optimizer=Adam()),
        averaging=Averaging("equal", tuple(trunk)),
        period=2,
        parameters=(last,),
    )
    for clients in pick(size, smoke=(20,), reduced=(20,), full=(20, 40, 80)):
        few = pick(size, smoke=(12,), reduced=(600,), full=())
        scenario = replace(PERMUTED_CIFAR10, clients=clients, examples=few)
        rounds = pick(size, smoke=2, reduced=60, full=300)
        yield from _column("cifar10-permuted", clients, scenario, model, rounds, cfl_gp)


def _channels(size: Size) -> list[Cell]:
    batch = pick(size, smoke=8, reduced=20, full=200)
    clients = pick(size, smoke=4, reduced=8, full=16)
    rounds = pick(size, smoke=2, reduced=40, full=2000)
    return _column(
        "channels",
        clients,
        ChannelState(
            clients=clients,
            examples=pick(size, smoke=8, reduced=200, full=12_500),
        ),
        CSIAutoencoder(
            code=pick(size, smoke=16, reduced=64, full=1024),
            norm=pick(size, smoke="group", reduced="group", full="batch"),
        ),
        rounds,
        CFLGP(
            2,
            "update",
            local=LocalTraining(
                lr=0.002,
                epochs=1,
                batch_size=batch,
                optimizer=Adam(),
                # The rate is reset after 125,000 mini-batches of a client, which are all rounds.
                schedule=Constant() if size == "reduced" else CosineRestarts(period=rounds),
            ),
            averaging=Averaging("equal", ("encoder.*",)),
            period=5,
            compression=100.0,
        ),
    )


def _fig_4_right(size: Size) -> Iterator[Cell]:
    """Channels of 32 data centres, clustered by a part of the values of each update."""
    usual = _channels(size)[0].experiment
    cfl_gp: Any = usual.algorithm
    local = replace(cfl_gp.local, schedule=CosineRestarts(period=usual.most_rounds))
    clients = pick(size, smoke=4, reduced=8, full=32)
    scenario: Any = usual.scenario
    rounds = pick(size, smoke=3, reduced=21, full=21)
    ratios = (1, 10, 100, 1000, 10_000, 100_000)
    for ratio in pick(size, smoke=(1, 1000), reduced=(1, 100, 10_000), full=ratios):
        method = replace(cfl_gp, local=local, compression=float(ratio), patience=rounds)
        like = replace(usual, scenario=replace(scenario, clients=clients), rounds=rounds)
        column = f"ratio = {ratio}"
        yield from cells(like, {"CFL-GP": method}, column, slug("channels", f"c{clients}", column))


def _reproduction(name: str, make: Callable[[Size], Iterable[Cell]], measure: str) -> Reproduction:
    return Reproduction(
        findings()[f"cflgp-table1-{name}"],
        make,
        (measure, "ari"),
        (RoundsPlot(measure), RoundsPlot("ari")),
        {"smoke": 1, "reduced": 1, "full": 5},
    )


REPRODUCTIONS = (
    _reproduction("csi", _channels, "nmse"),
    _reproduction("resnet", _resnet, "accuracy"),
    _reproduction("emnist", _emnist, "accuracy"),
    Reproduction(
        findings()["cflgp-fig4-right"],
        _fig_4_right,
        ("ari@2", "ari@11", "ari@21"),
        (ColumnsPlot("ari@21", "compression ratio", True, number_of),),
        {"smoke": 1, "reduced": 1, "full": 5},
    ),
)
