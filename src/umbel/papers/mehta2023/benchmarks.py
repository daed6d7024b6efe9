"""The four federations of V-A, and the training on them."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

from umbel.client.work import LocalTraining
from umbel.data.scenarios.mehta import (
    GROUPED_CIFAR10,
    GROUPED_ROTATED_EMNIST,
    LABEL_SWAPPED_CIFAR10,
    ROTATED_MNIST,
)
from umbel.data.scenarios.shifted import Shifted
from umbel.data.shifts import SwapLabels
from umbel.experiment.experiment import ExperimentSettings
from umbel.networks import MLP
from umbel.papers.base import Size, pick, shipped


@dataclass(frozen=True)
class Benchmark:
    """A federation, with the settings of methods for it."""

    name: str
    scenario: Shifted
    _: KW_ONLY
    reduced: tuple[int, int]  # range of a client's examples at reduced size
    lr: float
    ifca: tuple[int, int, int]  # k: too low, right, too high
    flhc: tuple[float, float, float]  # d: too low, right, too high
    pfedme: tuple[float, float]  # lambda, beta
    alpha: float  # alpha of Per-FedAvg
    whole_batches: bool = False  # whether a smaller last batch of an epoch is left out

    @property
    def local(self) -> LocalTraining:
        """The training of the package's experiment on rotated MNIST, at this learning rate."""
        algorithm: Any = shipped("flacc-mnist").algorithm
        local: LocalTraining = replace(algorithm.local, lr=self.lr, drop_last=self.whole_batches)
        return local

    def experiment(self, size: Size) -> ExperimentSettings:
        """The package's experiment, on this federation."""
        full = shipped("flacc-mnist")
        few = replace(self.scenario, clients=10, examples=(20,))
        fewer = replace(self.scenario, clients=40, examples=self.reduced)
        return replace(
            full,
            scenario=pick(size, smoke=few, reduced=fewer, full=self.scenario),
            model=pick(size, smoke=MLP((16,)), reduced=MLP(), full=full.model),
            description="Mehta & Shao 2023, V",
            rounds=pick(size, smoke=2, reduced=50, full=full.rounds),
            evaluate_every=pick(size, smoke=1, reduced=2, full=5),
            checkpoint_every=pick(size, smoke=25, reduced=25, full=5),
        )


BENCHMARKS = (
    Benchmark(
        "rotated MNIST",
        ROTATED_MNIST,
        reduced=(200, 400),
        lr=0.1,
        ifca=(3, 4, 5),
        flhc=(0.5, 0.75, 1.0),
        pfedme=(15, 4),
        alpha=0.01,
    ),
    Benchmark(
        "grouped CIFAR-10",
        GROUPED_CIFAR10,
        reduced=(150, 300),
        lr=0.075,
        ifca=(4, 5, 6),
        flhc=(0.4, 0.6, 0.9),
        pfedme=(15, 6),
        alpha=0.005,
    ),
    Benchmark(
        "label-swapped CIFAR-10",
        LABEL_SWAPPED_CIFAR10,
        reduced=(300, 600),
        lr=0.075,
        ifca=(4, 5, 6),
        flhc=(0.8, 0.9, 1.0),
        pfedme=(10, 8),
        alpha=0.01,
    ),
    Benchmark(
        "grouped + rotated EMNIST",
        GROUPED_ROTATED_EMNIST,
        reduced=(150, 400),
        lr=0.05,
        ifca=(3, 4, 5),
        flhc=(0.6, 0.75, 0.9),
        pfedme=(15, 4),
        alpha=0.015,
    ),
)

AT_FULL_SIZE = (
    replace(
        BENCHMARKS[2],
        name="label-swapped CIFAR-10, read anew",
        scenario=replace(
            LABEL_SWAPPED_CIFAR10, standardise=True, shift=SwapLabels(groups=5, disjoint=True)
        ),
        whole_batches=True,
    ),
    replace(
        BENCHMARKS[3],
        name="grouped + rotated EMNIST, 200 to 600",
        scenario=replace(GROUPED_ROTATED_EMNIST, examples=(200, 600)),
    ),
)
"""Two more: what the paper leaves open chosen so that FLACC finds its five clusters, and at most
600 letters a client, as a data set with fewer of them allows."""
