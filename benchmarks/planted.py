"""Federations whose number of groups is known, of digits and of made tables, in which groups differ
by a rotation, by names of labels, by how frequent labels are, or by shifted features.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

import umbel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Shift = Literal["rotation", "labels renamed", "label skew", "features shifted"]

FEATURES, CLASSES = 10, 3
"""Columns and labels of a made table."""


@dataclass(frozen=True)
class Planted:
    """One federation, by how it is made."""

    source: Literal["digits", "table"]
    shift: Shift
    groups: int  # K
    seed: int

    def build(self) -> umbel.Federation:
        """20 to 100 clients with 0.4 to 1.6 times a mean number of examples, in random groups."""
        rng = np.random.default_rng(self.seed)
        clients = int(rng.integers(20, 101))
        mean = int(rng.integers(40, 121))
        first = np.repeat(np.arange(self.groups), 2)
        others = rng.integers(0, self.groups, clients - len(first))
        of = rng.permutation(np.concatenate([first, others]))
        make = _Digits(rng, self) if self.source == "digits" else _Table(rng, self)
        sizes = np.rint(rng.uniform(0.4, 1.6, clients) * mean).astype(int)
        pairs = [make.client(int(group), int(size)) for group, size in zip(of, sizes, strict=True)]
        classes = 10 if self.source == "digits" else CLASSES
        return umbel.Federation.from_arrays(
            pairs, groups=of.tolist(), num_classes=classes, test_fraction=0.25, seed=self.seed
        )


class _Digits:
    """scikit-learn's digits; clients draw from all of them, each without replacement."""

    def __init__(self, rng: np.random.Generator, planted: Planted) -> None:
        from sklearn.datasets import load_digits

        data = load_digits()
        self.images, self.labels = data.images / 16.0, data.target.astype(np.int64)
        self.rng, self.shift, groups = rng, planted.shift, planted.groups
        self.angles = np.arange(groups) * 360 / groups
        self.names = [np.arange(10), *(rng.permutation(10) for _ in range(groups - 1))]
        self.shares = rng.dirichlet(np.full(10, 0.4), groups)
        self.added = rng.normal(0, 0.25, (groups, 8, 8))

    def client(self, group: int, size: int) -> tuple[NDArray[np.float32], Ints]:
        from scipy.ndimage import rotate

        weights = np.ones(len(self.labels))
        if self.shift == "label skew":
            weights = self.shares[group][self.labels] + 1e-6
        rows = self.rng.choice(len(weights), size, replace=False, p=weights / weights.sum())
        x, y = self.images[rows], self.labels[rows]
        if self.shift == "rotation":
            x = rotate(x, self.angles[group], axes=(1, 2), reshape=False, order=1)
        if self.shift == "features shifted":
            x = x + self.added[group]
        y = self.names[group][y] if self.shift == "labels renamed" else y
        return x[:, None].astype(np.float32), y.astype(np.int64)


class _Table:
    """Normal features, and labels by a random logistic model."""

    def __init__(self, rng: np.random.Generator, planted: Planted) -> None:
        self.rng, self.shift, groups = rng, planted.shift, planted.groups
        size = (FEATURES, CLASSES)
        self.common = rng.normal(0, 1.5, size)
        self.weights = [rng.normal(0, 1.5, size) for _ in range(groups)]
        self.turns = [np.linalg.qr(rng.normal(size=(FEATURES, FEATURES)))[0] for _ in range(groups)]
        self.scale = np.exp(rng.normal(0, 0.5, FEATURES))
        self.shares = rng.dirichlet(np.full(CLASSES, 0.7), groups)
        self.added = rng.normal(0, 0.8, (groups, FEATURES))

    def client(self, group: int, size: int) -> tuple[NDArray[np.float32], Ints]:
        skewed = self.shift == "label skew"
        x = self.rng.normal(size=(20 * size if skewed else size, FEATURES)) * self.scale
        y = self._labels(x, self.weights[group] if self.shift == "labels renamed" else self.common)
        if skewed:
            weights = self.shares[group][y] + 1e-6
            rows = self.rng.choice(len(y), size, replace=False, p=weights / weights.sum())
            x, y = x[rows], y[rows]
        if self.shift == "features shifted":
            x = x + self.added[group]
        if self.shift == "rotation":
            x = x @ self.turns[group]
        return x.astype(np.float32), y

    def _labels(self, x: Floats, weights: Floats) -> Ints:
        logits = x @ weights + self.rng.gumbel(size=(len(x), CLASSES))
        found: Ints = logits.argmax(1)
        return found


def forty(first_seed: int) -> list[Planted]:
    """40 federations: eight without groups, and 32 with 2 to 8 groups that differ in each way."""
    shifts: tuple[Shift, ...] = ("rotation", "labels renamed", "label skew", "features shifted")
    counts = ((2, 3, 5, 8), (2, 4, 6, 7))
    sources: tuple[Literal["digits", "table"], ...] = ("digits", "table")
    made: list[tuple[Literal["digits", "table"], Shift, int]] = []
    for source, several in zip(sources, counts, strict=True):
        made += [(source, "rotation", 1)] * 4
        made += [(source, shift, count) for shift in shifts for count in several]
    return [Planted(*how, first_seed + number) for number, how in enumerate(made)]
