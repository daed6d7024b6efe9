"""What every side does: the clients and their examples, the network, the training, the method.

Needs only NumPy, as each side has an environment of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod, sqrt
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

Shard: TypeAlias = "tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]"
"""The examples of a client: x (n, ...) and y (n,)."""

CLASSES, GROUPS = 10, 2

ROUNDS, EVALUATE_EVERY = 4, 2
"""Rounds that a process does. The first two warm up, and every other one is evaluated."""

CLUSTERS, COMPONENTS = 2, 3
"""Models of IFCA and of FedEM."""

PULL, PERSONAL_STEPS, PERSONAL_LR = 15.0, 5, 0.03
"""pFedMe: lambda, K, and the learning rate of the personal model."""

ALPHA, DELTA = 0.03, 0.001
"""Per-FedAvg: the inner learning rate, and the distance of the two gradients for the Hessian."""

EVALUATED_AT_ONCE = 64
"""Examples that other sides evaluate at once."""


@dataclass(frozen=True)
class Task:
    """Rounds of a method on a federation of synthetic images."""

    what: str
    network: str
    shape: tuple[int, ...]
    clients: int
    examples: tuple[int, int]  # of each client, for training and for the test
    cohort: int  # clients asked in a round
    epochs: int
    batch: int
    lr: float
    contrast: float  # distance of the classes' patterns, in standard deviations of the noise
    method: str = "fedavg"
    peers: tuple[str, ...] = ("loop",)

    def draw(self) -> dict[str, Any]:
        """The examples of all clients, in sequence, by the name of their array.

        An example is the pattern of its class and noise. In the second group of clients, the first
        half of the classes has other labels, so that one model can't fit both.
        """
        rng = np.random.default_rng(0)
        fine = 4 if len(self.shape) == 3 else 1  # patterns of images have blocks of 4 x 4 pixels
        coarse = [side // fine if place else side for place, side in enumerate(self.shape)]
        patterns = rng.standard_normal((CLASSES, *coarse), dtype=np.float32)
        for axis in range(2, 1 + len(self.shape)):
            patterns = patterns.repeat(fine, axis)
        patterns *= self.contrast / sqrt(2 * prod(self.shape))
        arrays: dict[str, Any] = {}
        for split, each in zip(("train", "test"), self.examples, strict=True):
            count = self.clients * each
            shown = rng.integers(0, CLASSES, count)
            x = rng.standard_normal((count, *self.shape), dtype=np.float32)
            for start in range(0, count, 1000):
                x[start : start + 1000] += patterns[shown[start : start + 1000]]
            group = np.arange(count) // each % GROUPS
            half = CLASSES // 2
            y = np.where(shown < half, (shown + group) % half, shown)
            arrays |= {f"{split}_x": x, f"{split}_y": y}
        return arrays

    def clients_of(self, file: Path) -> tuple[list[Shard], list[Shard]]:
        """Every client's training and test examples: parts of the arrays in a file."""
        with np.load(file) as arrays:
            splits = [(arrays[f"{split}_x"], arrays[f"{split}_y"]) for split in ("train", "test")]
        train, test = (
            [
                (x[n * each : (n + 1) * each], y[n * each : (n + 1) * each])
                for n in range(self.clients)
            ]
            for (x, y), each in zip(splits, self.examples, strict=True)
        )
        return train, test


MLP = Task(
    "MLP 784-200-10, 40 clients x 200, batch 20, 2 epochs",
    *("mlp", (1, 28, 28), 40, (200, 50), 40, 2, 20, 0.05, 6.0),
)
CNN = Task(
    "CNN 5x5 32/64, 512 on 1x28x28, 5 clients x 200, batch 20, 1 epoch",
    *("cnn", (1, 28, 28), 5, (200, 50), 5, 1, 20, 0.05, 40.0),
)
# Sizes, network and training of benchmarks/image_classification/configs/baseline.yaml in
# pfl-research: 50,000 and 10,000 images, 50 for each client, 1 epoch at 0.1, equal weights. The
# images are synthetic.
CIFAR = Task(
    "pfl-research's CNN for CIFAR-10, 1,000 clients x 50, of whom 50 are asked, batch 10, 1 epoch",
    *("cifar", (3, 32, 32), 1000, (50, 10), 50, 1, 10, 0.1, 40.0),
)
LINEAR = Task(
    "linear model of 210 values, 10,000 clients x 10, one step",
    *("linear", (20,), 10_000, (10, 2), 10_000, 1, 10, 0.5, 6.0),
)

TASKS = {
    "mlp-fedavg": replace(MLP, peers=("loop", "pfl", "fedjax")),
    **{
        f"mlp-{method}": replace(MLP, method=method)
        for method in ("ifca", "fedem", "pfedme", "per-fedavg", "per-fedavg-hf")
    },
    "cnn-fedavg": replace(CNN, peers=("loop", "pfl", "fedjax")),
    **{f"cnn-{name}": replace(CNN, method=name) for name in ("fedem", "pfedme", "per-fedavg")},
    "cifar-fedavg": replace(CIFAR, peers=("loop", "pfl")),
    "linear-fedavg": replace(LINEAR, peers=("loop", "pfl", "fedjax")),
}
