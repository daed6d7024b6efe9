"""The joint method compared with its baseline, which uses only the loss: Figs. 4 and 5."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from umbel.algorithms.base import Algorithm
from umbel.data.scenarios.lin import LIN_CIFAR10, LIN_EMNIST, LIN_FASHION_MNIST, LIN_MNIST
from umbel.data.scenarios.overlapping_labels import OverlappingLabels
from umbel.networks import MLP, CNNLin, Model
from umbel.papers.base import Cell, Reproduction, RoundsPlot, Size, cells, pick, shipped, slug
from umbel.papers.findings import findings

BASELINE = "baseline (loss alone)"
LAMBDAS = (0.1, 0.2, 0.5)
SMOKE = OverlappingLabels(clients=8)  # scikit-learn's digits


def _column(
    size: Size,
    column: str,
    scenario: OverlappingLabels,
    rounds: tuple[int, int],
    evaluate_every: int,
    lambdas: tuple[float, ...] = (0.2,),
    model: Model | None = None,
    batch: int | None = None,
) -> Iterator[Cell]:
    """The method with each lambda for some rounds, and the baseline for some, at reduced size.

    The rest is the package's experiment of Fig. 4 (a), at full size all of it.
    """
    full = shipped("joint-0.2-lin")
    scenario = pick(size, smoke=SMOKE, reduced=scenario, full=scenario)
    joint: Any = full.algorithm
    local = replace(joint.local, batch_size=batch or joint.local.batch_size)
    same = {"num_clusters": len(scenario.labels), "local": local}
    baseline: Any = shipped("ifca-lin").algorithm
    methods: dict[str, Algorithm[Any]] = {
        f"λ = {lam}": replace(joint, lam=lam, **same)
        for lam in pick(size, smoke=(0.2,), reduced=lambdas, full=LAMBDAS)
    }
    like = replace(
        full,
        scenario=scenario,
        model=model or full.model,
        description="Lin et al. 2024, III",
        evaluate_every=pick(size, smoke=1, reduced=evaluate_every, full=1),
        checkpoint_every=50,
    )
    prefix = slug("lin", column, f"m{scenario.clients}")
    few, many = pick(size, smoke=(2, 2), reduced=rounds, full=(full.rounds, full.rounds))
    yield from cells(replace(like, rounds=few), methods, column, prefix)
    yield from cells(
        replace(like, rounds=many), {BASELINE: replace(baseline, **same)}, column, prefix
    )


def _digits(size: Size) -> Iterator[Cell]:
    """Fig. 4 (a) to (c)."""
    scenario = replace(LIN_MNIST, clients=pick(size, smoke=8, reduced=40, full=80))
    return _column(size, "MNIST MLP", scenario, (100, 300), 1, LAMBDAS)


def _digits_by_cnn(size: Size) -> Iterator[Cell]:
    """Fig. 4 (d) to (f)."""
    batch = pick(size, smoke=4, reduced=None, full=None)
    return _column(size, "MNIST CNN", LIN_MNIST, (40, 150), 20, model=CNNLin(), batch=batch)


def _other_data(size: Size) -> Iterator[Cell]:
    """Fig. 5."""
    for column, scenario, wide in (
        ("FashionMNIST", LIN_FASHION_MNIST, None),
        ("CIFAR10", LIN_CIFAR10, MLP((2048, 512))),
        ("EMNIST", LIN_EMNIST, None),
    ):
        model = pick(size, smoke=MLP((32,)), reduced=None, full=wide)
        yield from _column(size, column, scenario, (40, 100), 10, model=model)


PURITY = ("saved_pure_round", "pure_round", "purity", "accuracy")
BOTH = (RoundsPlot("purity"), RoundsPlot("accuracy"))
SAID = findings()

REPRODUCTIONS = (
    Reproduction(
        SAID["lin-fig4"],
        _digits,
        (
            *("saved_pure_round", "saved_accurate_round", "pure_round", "accurate_round"),
            *("purity", "accuracy"),
        ),
        BOTH,
        {"smoke": 1, "reduced": 3, "full": 5},
        baseline=BASELINE,
    ),
    Reproduction(SAID["lin-fig4-cnn"], _digits_by_cnn, PURITY, BOTH, baseline=BASELINE),
    Reproduction(
        SAID["lin-fig5"],
        _other_data,
        PURITY,
        (RoundsPlot("purity"),),
        baseline=BASELINE,
    ),
)
