"""Clients with vibration data of two bearing faults each."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from umbel.checks import check
from umbel.data.bearings import windows
from umbel.data.federation import Federation
from umbel.data.partition import check_few, client_sizes, draw, equal_groups
from umbel.data.scenarios.base import Scenario, check_apart, check_clients, check_examples
from umbel.data.sources import Sources
from umbel.seeds import Stream, generator

PAIRS = ((0, 1), (2, 3), (4, 8), (5, 6), (7, 11), (9, 10))
"""The labels of each group (Mehta & Shao 2023, VI)."""


@dataclass(frozen=True)
class BearingFaults(Scenario):
    """Windows of vibration signals; each of six groups of clients has data of two of 12 faults.

    Mehta & Shao 2023, VI, with public recordings of Case Western Reserve University instead of the
    authors' own. There are four faults of the ball, four of the inner race and four of the outer
    race (labels 0 to 3, 4 to 7 and 8 to 11, each in order of size). Groups share a faulty part or a
    size, as the authors' groups share a condition of a rotor or a bearing. Windows do not overlap:
    no sample is both for training and for the test. There are fewer data than the authors have
    (1,920 signals per fault, 200 to 600 per client), about 950 windows of 256 samples per fault, so
    clients have half as many. Inputs (1, window) have mean 0 and standard deviation 1 over all
    windows.
    """

    clients: int = 48  # M, divided equally among the six groups
    window: int = 256  # number of samples, at 12,000 per second
    examples: tuple[int, ...] = (100, 300)  # a client's: (n,), or uniform in (low, high)
    test_fraction: float = 0.15  # of each client's examples
    validation_fraction: float | None = None  # of what is left for training, for validation

    def __post_init__(self) -> None:
        check_clients(self.clients, len(PAIRS), "groups")
        check(8 <= self.window <= 120_000, "window", self.window, "in 8 to 120,000")
        check_examples(self.examples)
        check_apart(self.validation_fraction, self.test_fraction)

    def build(self, seed: int, sources: Sources) -> Federation:
        rng = generator(seed, Stream.DATA)
        arrays = windows(sources, self.window)
        arrays = arrays.standardised(like=arrays)
        check_few(self.clients, len(arrays.y))
        groups = np.repeat(np.arange(len(PAIRS)), equal_groups(self.clients, len(PAIRS)))
        allowed = np.array([np.isin(np.arange(arrays.num_classes), PAIRS[g]) for g in groups])
        sizes = client_sizes(self.examples, allowed, arrays.y, rng)
        return Federation.from_arrays(
            [(arrays.images(r), arrays.y[r]) for r in draw(arrays.y, sizes, allowed, rng)],
            groups=groups.tolist(),
            num_classes=arrays.num_classes,
            test_fraction=self.test_fraction,
            validation_fraction=self.validation_fraction or 0.0,
            seed=seed,
        )
