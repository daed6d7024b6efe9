"""Rotated images, F.5: Tables 3, 7, 9, 10 and 11, Figs. 3, 4 and 19."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from umbel.algorithms import PACFL, FedEM
from umbel.algorithms.base import Algorithm
from umbel.client.work import LocalTraining
from umbel.data.scenarios.base import Scenario
from umbel.data.scenarios.kim import (
    MIXTURE_MNIST,
    MNIST_AND_FASHION,
    ROTATED_MNIST_4,
    ROTATED_MNIST_8,
)
from umbel.data.scenarios.shifted import Shifted
from umbel.data.shifts import MixedTurns
from umbel.experiment.experiment import ExperimentSettings
from umbel.papers.base import (
    Cell,
    ColumnsPlot,
    Reproduction,
    RoundsPlot,
    Size,
    SpectrumPlot,
    cells,
    number_of,
    pick,
    shipped,
    slug,
)
from umbel.papers.findings import findings
from umbel.papers.kim2024.methods import by_gradients
from umbel.server.aggregation import Averaging


def _experiment(
    size: Size, scenario: Scenario, full: int = 200, smoke: int = 3
) -> ExperimentSettings:
    """The package's experiment on this federation; at smoke size a few images a client."""
    if size == "smoke" and isinstance(scenario, Shifted):
        scenario = replace(scenario, examples=(20,))
    return replace(
        shipped("cfl-gp-mnist8"),
        scenario=scenario,
        description="Kim et al. 2024, F.5",
        rounds=pick(size, smoke=smoke, reduced=full, full=full),
        evaluate_every=50,
        checkpoint_every=100,
    )


def _eight(size: Size, row: str, clients: int, batch: int, column: str) -> Cell:
    """A method on eight angles; its row says K, if it has any."""
    name, _, rest = row.partition(" (K=")
    method = by_gradients(int(rest[:-1]) if rest else 4, batch)[name]
    experiment = _experiment(size, replace(ROTATED_MNIST_8, clients=clients))
    (cell,) = cells(experiment, {row: method}, column, slug("mnist8", f"c{clients}", f"b{batch}"))
    return cell


def _cell(
    row: str, column: str, like: ExperimentSettings, method: Algorithm[Any], *name: str
) -> Cell:
    """A cell whose experiment is like another, with this method and a name of these parts."""
    return Cell(row, column, replace(like, algorithm=method, name=slug(*name)))


def _table_10(size: Size) -> Iterator[Cell]:
    columns = pick(size, smoke=(8,), reduced=(8, 32, 128), full=(8, 16, 32, 64, 128))
    k = ("K=4", "K=8")
    for row in (*(f"CFL-GP ({n})" for n in k), *(f"IFCA ({n})" for n in k), "MADMO", "Global"):
        for clients in columns:
            yield _eight(size, row, clients, 64, f"C = {clients}")


def _table_3(size: Size) -> Iterator[Cell]:
    every = (*((c, 64) for c in (8, 16, 32, 64, 128)), *((32, b) for b in (32, 128, 256)))
    for row in ("CFL-GP (K=4)", "IFCA (K=4)", "MADMO"):
        for clients, batch in pick(size, smoke=every[:1], reduced=every, full=every):
            yield _eight(size, row, clients, batch, f"C = {clients}, b = {batch}")


def _fig_2(size: Size) -> Iterator[Cell]:
    """Costs: every round is evaluated, until it is known when the accuracy is reached."""
    for row in ("CFL-GP (K=4)", "IFCA (K=4)", "MADMO"):
        for clients in pick(size, smoke=(8,), reduced=(8, 32, 128), full=(8, 16, 32, 64, 128)):
            cell = _eight(size, row, clients, 64, f"C = {clients}")
            name = f"{cell.experiment.name}-each"
            yield replace(cell, experiment=replace(cell.experiment, evaluate_every=1, name=name))


def _fig_7(size: Size) -> Iterator[Cell]:
    """Features that are running means, and those of the latest gradients alone."""
    every = (*((c, 128) for c in (32, 64, 128)), *((32, b) for b in (64, 256)))
    for clients, batch in pick(size, smoke=((8, 20),), reduced=every, full=every):
        for row, beta in (("β = 1/n", "running-mean"), ("β = 1", "latest")):
            experiment = _experiment(size, replace(ROTATED_MNIST_8, clients=clients))
            method = by_gradients(4, batch, beta=beta, patience=experiment.most_rounds)["CFL-GP"]
            name = ("mnist8", f"c{clients}", f"b{batch}", "cfl-gp", f"beta-{beta}")
            yield _cell(row, f"C = {clients}, b = {batch}", experiment, method, *name)


def _fig_19(size: Size) -> Iterator[Cell]:
    """Singular values of CFL-GP's feature vectors, after increasing numbers of rounds."""
    for rounds in pick(size, smoke=(4,), reduced=(10, 40), full=(10, 20, 40)):
        method = by_gradients(4, 64, patience=rounds)["CFL-GP"]
        for c in pick(size, smoke=(16,), reduced=(16, 32, 64, 128), full=(16, 32, 64, 128)):
            usual = _experiment(size, replace(ROTATED_MNIST_8, clients=c))
            name = ("mnist8", f"c{c}", "b64", "cfl-gp", f"t{rounds}")
            like = replace(usual, rounds=rounds)
            yield _cell(f"t = {rounds}", f"C = {c}", like, method, *name)


BATCH = 100  # batch size of the experiments with four angles


def _four(size: Size, clients: int, full: int = 200) -> ExperimentSettings:
    return _experiment(size, replace(ROTATED_MNIST_4, clients=clients), full)


def _table_7(size: Size) -> Iterator[Cell]:
    clients = pick(size, smoke=8, reduced=40, full=80)
    prefix = slug("mnist4", f"c{clients}")
    for digits in range(5):
        method = by_gradients(4, BATCH, digits=digits)["CFL-GP"]
        name = (prefix, "cfl-gp", f"nd{digits}")
        yield _cell("CFL-GP", f"n_d = {digits}", _four(size, clients), method, *name)
    methods = dict(by_gradients(4, BATCH))
    del methods["CFL-GP"]
    yield from cells(_four(size, clients), methods, "all digits", prefix)


def _table_9(size: Size) -> Iterator[Cell]:
    usual: Any = shipped("ifca-mnist8").algorithm
    one_step: LocalTraining = replace(usual.local, batch_size=BATCH)
    methods = {**by_gradients(4, BATCH), "FedEM": FedEM(4, one_step)}
    for clients in pick(size, smoke=(8,), reduced=(20, 80), full=(20, 40, 80, 160)):
        prefix = slug("mnist4", f"c{clients}")
        yield from cells(_four(size, clients), methods, f"C = {clients}", prefix)


def _fig_8(size: Size) -> Iterator[Cell]:
    """PACFL with several thresholds, beside CFL-GP."""
    usual: Any = shipped("ifca-mnist8").algorithm
    local = replace(usual.local, batch_size=BATCH)
    methods: dict[str, Algorithm[Any]] = {
        f"PACFL (ν = {angle:g})": PACFL(threshold=angle, local=local, averaging=Averaging("equal"))
        for angle in pick(
            size, smoke=(4.0,), reduced=(3.0, 4.0, 5.0, 6.0), full=(3.0, 4.0, 5.0, 6.0)
        )
    }
    methods["CFL-GP"] = by_gradients(4, BATCH)["CFL-GP"]
    for clients in pick(size, smoke=(8,), reduced=(20, 40, 80, 160), full=(20, 40, 80, 160)):
        prefix = slug("mnist4", f"c{clients}")
        yield from cells(_four(size, clients), methods, f"C = {clients}", prefix)


def _fig_13(size: Size) -> Iterator[Cell]:
    """Four angles, and other sizes of the mini-batch; numbers of clients are those of Table 9."""
    for batch in pick(size, smoke=(20,), reduced=(25, 50, 200), full=(25, 50, 100, 200)):
        methods = by_gradients(4, batch)
        prefix = slug("mnist4", "c40", f"b{batch}")
        clients = pick(size, smoke=8, reduced=40, full=40)
        yield from cells(_four(size, clients), methods, f"b = {batch}", prefix)


def _fig_4(size: Size) -> Iterator[Cell]:
    """Running means after 1, 10 and 20 rounds, of values of each gradient drawn at random."""
    clients = pick(size, smoke=8, reduced=80, full=80)
    rounds = pick(size, smoke=3, reduced=21, full=21)
    ratios = (1, 10, 100, 1000, 10_000, 100_000)
    for ratio in pick(size, smoke=(1, 1000), reduced=ratios, full=ratios):
        method = by_gradients(4, BATCH, patience=rounds, compression=ratio)["CFL-GP"]
        name = ("mnist4", f"c{clients}", "cfl-gp", f"t{rounds}", f"ratio{ratio}")
        yield _cell("CFL-GP", f"ratio = {ratio}", _four(size, clients, full=21), method, *name)


def _fig_3(size: Size) -> Iterator[Cell]:
    """Clients that mix the distributions of others (F.5.2)."""
    every = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
    for kappa in pick(size, smoke=(0.5,), reduced=every[::2], full=every):
        scenario = replace(MIXTURE_MNIST, shift=MixedTurns(kappa=kappa))
        experiment = _experiment(size, scenario, full=400, smoke=6)
        methods = by_gradients(3, 64, patience=experiment.most_rounds)
        yield from cells(experiment, methods, f"κ = {kappa}", slug("mixture", f"kappa{kappa}"))


def _table_11(size: Size) -> Iterator[Cell]:
    """Two data sets in one federation (F.5.3)."""
    batch = pick(size, smoke=16, reduced=256, full=256)
    whole = MNIST_AND_FASHION.parts
    few = tuple(replace(part, examples=(20,)) for part in whole)
    for clients in pick(size, smoke=(32,), reduced=(32,), full=(32, 64, 128)):
        parts = pick(size, smoke=few, reduced=whole, full=whole)
        scenario = replace(MNIST_AND_FASHION, clients=clients, parts=parts)
        prefix = slug("mnist-fashion", f"c{clients}")
        experiment = _experiment(size, scenario)
        yield from cells(experiment, by_gradients(5, batch), f"C = {clients}", prefix)


def _against(x_title: str, *measures: str, log_x: bool = True) -> tuple[ColumnsPlot, ...]:
    return tuple(ColumnsPlot(measure, x_title, log_x, number_of) for measure in measures)


SAID = findings()
QUALITY = ("accuracy", "ari")
BY_CLIENTS = _against("clients C", *QUALITY)
DECIMALS = tuple(ColumnsPlot(measure, "decimals sent") for measure in ("ari", "accuracy"))
AFTER = ("ari@2", "ari@11", "ari@21")
THREE: dict[Size, int] = {"smoke": 1, "reduced": 3, "full": 5}
TEN: dict[Size, int] = {"smoke": 1, "reduced": 2, "full": 10}

REPRODUCTIONS = (
    Reproduction(SAID["cflgp-table10"], _table_10, QUALITY, BY_CLIENTS, TEN),
    Reproduction(
        SAID["cflgp-fig2"],
        _fig_2,
        ("sent_to_goal", "seconds_to_goal", "sent_in_two"),
        _against("clients C", "sent_to_goal", "seconds_to_goal"),
        TEN,
    ),
    Reproduction(SAID["cflgp-fig7"], _fig_7, ("mean_ari", "ari"), (RoundsPlot("ari"),), THREE),
    Reproduction(SAID["cflgp-fig8"], _fig_8, ("ari", "accuracy", "clusters"), BY_CLIENTS, THREE),
    Reproduction(
        SAID["cflgp-fig13"],
        _fig_13,
        ("ari", "accuracy"),
        _against("mini-batch b", "ari", "accuracy"),
        THREE,
    ),
    Reproduction(
        SAID["cflgp-table3"],
        _table_3,
        ("peak_round", "optimal_round", "ari"),
        (RoundsPlot("ari"),),
        TEN,
    ),
    Reproduction(
        SAID["cflgp-fig19"],
        _fig_19,
        ("rank",),
        (SpectrumPlot(),),
        {"smoke": 1, "reduced": 1, "full": 10},
    ),
    Reproduction(SAID["cflgp-table7"], _table_7, ("ari", "accuracy"), DECIMALS),
    Reproduction(SAID["cflgp-table9"], _table_9, QUALITY, BY_CLIENTS),
    Reproduction(
        SAID["cflgp-fig4"],
        _fig_4,
        AFTER,
        _against("compression ratio", *AFTER),
        {"smoke": 1, "reduced": 3, "full": 5},
    ),
    Reproduction(
        SAID["cflgp-fig3"],
        _fig_3,
        ("ari@6", "ari@200", "ari", "accuracy@200", "accuracy"),
        _against("mixture ratio κ", "ari@6", "ari@200", "ari", "accuracy", log_x=False),
    ),
    Reproduction(SAID["cflgp-table11"], _table_11, QUALITY, BY_CLIENTS),
)
