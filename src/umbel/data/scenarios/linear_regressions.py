"""Clients that hold noisy points on a line, with a different line in each group."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from umbel.checks import check, check_least, check_memory
from umbel.data.federation import Federation
from umbel.data.partition import equal_groups
from umbel.data.scenarios.base import Scenario, check_apart, check_clients
from umbel.data.sources import Sources
from umbel.seeds import Stream, generator

BYTES = 32
"""Bytes per example: x and y, here and again when the examples of all clients are joined."""


@dataclass(frozen=True)
class LinearRegressions(Scenario):
    """Linear regressions with noise: y = x tan(phi_k) + n, with a different slope in each group.

    Kim et al. 2024, 5.1 and F.4: x ~ U(0, cos(phi_k)) and n ~ N(0, noise^2), so that the best mean
    squared error is noise^2. The paper draws new examples in every round; here a client holds as
    many examples as 200 rounds with mini-batches of 10 use in the paper.
    """

    angles: tuple[float, ...] = (-20.0, 0.0, 20.0)  # phi_k of each group, in degrees
    noise: float = 0.2  # standard deviation of n
    clients: int = 12  # M, divided equally among the groups
    examples: int = 2000  # a client's, for training
    test_examples: int = 500  # a client's
    validation_fraction: float | None = None  # of the training examples, for validation

    def __post_init__(self) -> None:
        fine = bool(self.angles) and all(-90 < angle < 90 for angle in self.angles)
        check(fine, "angles", self.angles, "a list of angles in (-90, 90)")
        check(0 <= self.noise <= 1e30, "noise", self.noise, "in 0 to 1e30")
        check_clients(self.clients, len(self.angles), "groups")
        check_least(self, 1, "examples", "test_examples")
        check_apart(self.validation_fraction)

    def build(self, seed: int, sources: Sources) -> Federation:  # noqa: ARG002
        points = self.clients * (self.examples + self.test_examples)
        check_memory(points * BYTES, f"scenario: {points:,} examples")
        counts = equal_groups(self.clients, len(self.angles))
        groups = np.repeat(np.arange(len(self.angles)), counts)
        train, test = [], []
        for client, group in enumerate(groups):
            rng = generator(seed, Stream.DATA, client)
            phi, shape = np.radians(self.angles[group]), (self.examples + self.test_examples, 1)
            x = rng.uniform(0, np.cos(phi), shape)
            y = x * np.tan(phi) + rng.normal(0, abs(self.noise), shape)  # -0.0, too
            x, y = x.astype(np.float32), y.astype(np.float32)
            train.append((x[: self.examples], y[: self.examples]))
            test.append((x[self.examples :], y[self.examples :]))
        return Federation.from_arrays(
            train,
            test,
            groups=groups.tolist(),
            validation_fraction=self.validation_fraction or 0.0,
            seed=seed,
        )
