"""Mehta & Shao 2023, VI and V-A's FEMNIST: Table III, and the clients without planted groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from umbel.algorithms import FLACC, FLHC, IFCA, FedAvg, LocalOnly, PerFedAvg, Sattler
from umbel.algorithms.base import Algorithm
from umbel.client.optimizers import Adam
from umbel.client.work import LocalTraining
from umbel.data.scenarios import BearingFaults, Natural
from umbel.data.scenarios.base import Scenario
from umbel.networks import CNN, CNN1D, Model
from umbel.papers.base import Cell, Course, Published, Reproduction, Size, Sweep, pick, slug
from umbel.papers.mehta2023 import pfedme
from umbel.runs.experiment import Experiment

TABLE_3: Mapping[str, Published] = {
    "NoFed": Published(85.17, 1.40),
    "FedAvg": Published(21.56, 1.43),
    "pFedMe": Published(42.92, 4.08),
    "Per-FedAvg": Published(26.36, 2.73),
    "CFL": Published(87.54, 0.8),
    "IFCA (k = 6)": Published(89.98, 1.74),
    "FL+HC (d = 0.5)": Published(65.36, 1.33),
    "FLACC": Published(92.21, 0.70),
}

ADAM = LocalTraining(lr=5e-4, epochs=5, batch_size=32, optimizer=Adam())


def _table_3(size: Size) -> Iterator[Cell]:
    scenario = BearingFaults(
        clients=pick(size, smoke=6, reduced=24, full=48),
        examples=pick(size, smoke=(12,), reduced=(100, 200), full=(100, 300)),
    )
    narrow = CNN1D((16, 32, 64))
    model = pick(size, smoke=CNN1D((2, 2, 2)), reduced=narrow, full=CNN1D())
    methods: dict[str, Algorithm[Any]] = {
        "NoFed": LocalOnly(ADAM),
        "FedAvg": FedAvg(ADAM),
        "pFedMe": pfedme(30, 5),
        "Per-FedAvg": PerFedAvg(alpha=0.005, local=ADAM),
        "CFL": Sattler(ADAM),
        "IFCA (k = 6)": IFCA(6, ADAM),
        "FL+HC (d = 0.5)": FLHC(
            threshold=0.5, cluster_round=pick(size, smoke=1, reduced=10, full=10), local=ADAM
        ),
        "FLACC": FLACC(ADAM, n_merge=1),
    }
    rounds = pick(size, smoke=2, reduced=50, full=100)
    for row, method in methods.items():
        name = slug("faults", row)
        yield Cell(
            row,
            "mixed faults",
            _experiment(name, scenario, model, method, rounds, 0.25),
            {"accuracy": TABLE_3[row]},
        )


WRITERS: Mapping[str, Published] = {
    "NoFed": Published(65.11, 0.32),
    "FedAvg": Published(77.57, 0.48),
    "CFL": Published(72.42, 3.21),
    "IFCA (k = 5)": Published(77.64, 0.16),
    "FLACC": Published(82.92, 0.30),
}


def _writers(size: Size) -> Iterator[Cell]:
    local = LocalTraining(lr=0.05, epochs=5, batch_size=32)
    methods: dict[str, Algorithm[Any]] = {
        "NoFed": LocalOnly(local),
        "FedAvg": FedAvg(local),
        "CFL": Sattler(local),
        "IFCA (k = 5)": IFCA(5, local),
        "FLACC": FLACC(local),
    }
    scenario = Natural(clients=pick(size, smoke=8, reduced=60, full=195))
    rounds = pick(size, smoke=2, reduced=100, full=200)
    for row, method in methods.items():
        made = _experiment(slug("femnist", row), scenario, CNN(), method, rounds, 0.2)
        clusters = {"clusters": Published(11.5, 0.5)} if row == "FLACC" else {}
        yield Cell(row, "FEMNIST", made, {"accuracy": WRITERS[row], **clusters})


def _experiment(
    name: str,
    scenario: Scenario,
    model: Model,
    method: Algorithm[Any],
    rounds: int,
    participation: float,
) -> Experiment:
    return Experiment(
        scenario,
        model,
        method,
        name=name,
        description="Mehta & Shao 2023",
        rounds=rounds,
        participation=1.0 if isinstance(method, Sattler) else participation,
        evaluate_every=2 if rounds > 2 else 1,
        checkpoint_every=25,
    )


REPRODUCTIONS = (
    Reproduction(
        "flacc-table3",
        "Mehta & Shao 2023, Table III and Fig. 6",
        "Faults of machines, from public recordings in place of the authors' own",
        lambda size: list(_table_3(size)),
        ("accuracy", "clusters", "ari"),
        {"smoke": 1, "reduced": 1, "full": 5},
        (Sweep("accuracy", ""), Course("accuracy")),
        "48 clients in six groups that have seen two of 12 faults each, a quarter of them a round, "
        "100 rounds of five local epochs, Adam with 0.0005, the 1-D CNN of VI, one merge a round. "
        "The authors' data are not public: windows of the CWRU bearing recordings stand in, so "
        "that numbers can't be the paper's, only their order",
        "24 clients, a quarter of the filters, 50 rounds",
        needs=("cwru_bearing",),
    ),
    Reproduction(
        "flacc-fig5",
        "Mehta & Shao 2023, Fig. 5 and the last column of Table I",
        "FEMNIST: clients are writers, and no groups are planted",
        lambda size: list(_writers(size)),
        ("accuracy", "clusters", "separation"),
        {"smoke": 1, "reduced": 1, "full": 5},
        (Course("accuracy"),),
        "195 writers with 40 to 525 examples, a fifth of them a round, 200 rounds of five local "
        "epochs, the CNN of V-B, learning rate 0.05",
        "60 writers, 100 rounds",
        needs=("femnist",),
        absent="the data set with its writers was not at hand",
    ),
)
