"""Machine faults, and clients without planted groups: Table III and Fig. 5."""

from __future__ import annotations

from typing import Any

from umbel.algorithms import FLACC, FLHC, IFCA, FedAvg, LocalOnly, PerFedAvg, Sattler
from umbel.algorithms.base import Algorithm
from umbel.client.optimizers import Adam
from umbel.client.work import LocalTraining
from umbel.data.scenarios.bearing_faults import BearingFaults
from umbel.data.scenarios.natural import Natural
from umbel.experiment.experiment import ExperimentSettings
from umbel.networks import CNN, CNN1D
from umbel.papers.base import Cell, ColumnsPlot, Reproduction, RoundsPlot, Size, cells, pick
from umbel.papers.findings import findings
from umbel.papers.mehta2023.cells import pfedme

STEPS = LocalTraining(lr=0.005, steps=5, batch_size=32)
"""pFedMe's step is no gradient, so that Adam has no say: plain steps, at its authors' rate."""

ADAM = LocalTraining(lr=5e-4, epochs=5, batch_size=32, optimizer=Adam())


def _faults(size: Size) -> list[Cell]:
    methods: dict[str, Algorithm[Any]] = {
        "NoFed": LocalOnly(ADAM),
        "FedAvg": FedAvg(ADAM),
        "pFedMe": pfedme(30, 5, STEPS),
        "Per-FedAvg": PerFedAvg(alpha=0.005, local=ADAM),
        "CFL": Sattler(ADAM),
        "IFCA (k = 6)": IFCA(6, ADAM),
        "FL+HC (d = 0.5)": FLHC(
            threshold=0.5, cluster_round=pick(size, smoke=1, reduced=10, full=10), local=ADAM
        ),
        "FLACC": FLACC(ADAM, n_merge=1),
    }
    experiment = ExperimentSettings(
        BearingFaults(
            clients=pick(size, smoke=6, reduced=24, full=48),
            examples=pick(size, smoke=(12,), reduced=(100, 200), full=(100, 300)),
        ),
        pick(size, smoke=CNN1D((2, 2, 2)), reduced=CNN1D((16, 32, 64)), full=CNN1D()),
        methods["FLACC"],
        description="Mehta & Shao 2023, VI",
        rounds=pick(size, smoke=2, reduced=50, full=100),
        participation=0.25,
        evaluate_every=pick(size, smoke=1, reduced=2, full=2),
        checkpoint_every=25,
    )
    return cells(experiment, methods, "mixed faults", "faults")


def _writers(size: Size) -> list[Cell]:
    local = LocalTraining(lr=0.05, epochs=5, batch_size=32)
    methods: dict[str, Algorithm[Any]] = {
        "NoFed": LocalOnly(local),
        "FedAvg": FedAvg(local),
        "CFL": Sattler(local),
        "IFCA (k = 5)": IFCA(5, local),
        "FLACC": FLACC(local),
    }
    experiment = ExperimentSettings(
        Natural(clients=pick(size, smoke=8, reduced=60, full=195)),
        CNN(),
        methods["FLACC"],
        description="Mehta & Shao 2023, V",
        rounds=pick(size, smoke=2, reduced=100, full=200),
        participation=0.2,
        evaluate_every=pick(size, smoke=1, reduced=2, full=2),
        checkpoint_every=25,
    )
    return cells(experiment, methods, "FEMNIST", "femnist")


SEEDS: dict[Size, int] = {"smoke": 1, "reduced": 1, "full": 5}

REPRODUCTIONS = (
    Reproduction(
        findings()["flacc-table3"],
        _faults,
        ("accuracy", "clusters", "ari"),
        (ColumnsPlot("accuracy", ""), RoundsPlot("accuracy")),
        SEEDS,
    ),
    Reproduction(
        findings()["flacc-fig5"],
        _writers,
        ("accuracy", "clusters", "separation"),
        (RoundsPlot("accuracy"),),
        SEEDS,
    ),
)
