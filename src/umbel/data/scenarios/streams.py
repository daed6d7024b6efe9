"""Clients that get generated points step by step: the streams on which FedDrift was tried."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from umbel.checks import check, check_least, check_memory
from umbel.data.federation import Federation
from umbel.data.scenarios.base import Planned, Scenario, check_apart, staying
from umbel.data.scenarios.shifted import Shifted
from umbel.data.schedules import concepts_of
from umbel.data.shifts import SwapLabels
from umbel.data.sources import Sources
from umbel.seeds import Stream, generator

THRESHOLDS = (8.0, 9.0, 7.0, 9.5)
"""What the sum of two features exceeds in class 1, for each concept of SEA."""

CIRCLES = ((0.2, 0.5, 0.15), (0.6, 0.5, 0.25))
"""Centre and radius of the circle outside which points have class 1, for each concept."""

DRIFTING_MNIST = Shifted(
    source="mnist",
    clients=10,
    examples=(500,),
    shift=SwapLabels(pairs=((), (1, 2), (3, 4), (5, 6))),
)
"""MNIST-4: labels as they are, or with 1 and 2, 3 and 4, or 5 and 6 swapped."""


@dataclass(frozen=True)
class Streams(Scenario):
    """Points of two classes, whose boundary is another in each concept.

    The data of FedDrift (Jothimurugesan et al. 2023, with the authors' code for the numbers). SEA
    has three features, uniform in (0, 10), and four concepts: class 1 if x2 + x3 is above 8, 9, 7
    or 9.5. The others have two features, uniform in (0, 1), and two concepts. SINE has class 1 if
    x2 <= sin(x1), and in its second concept the opposite. CIRCLE has class 1 outside a circle,
    around (0.2, 0.5) with radius 0.15 or around (0.6, 0.5) with radius 0.25.

    Without a schedule, client i has concept i modulo their number.
    """

    stream: Literal["sea", "sine", "circle"] = "sea"  # what is generated
    clients: int = 10  # M
    examples: int = 500  # a client's, in each step
    # share of labels that are the wrong ones; None: as in the authors' data, 0.1 in SEA alone
    noise: float | None = None
    test_fraction: float = 0.15  # of each client's examples; not used with time
    validation_fraction: float | None = None  # of what is left for training, for validation

    def __post_init__(self) -> None:
        check_least(self, 1, "clients", "examples")
        check(self.noise is None or 0 <= self.noise <= 1, "noise", self.noise, "in 0 to 1")
        check_apart(self.validation_fraction, self.test_fraction)

    def build(self, seed: int, sources: Sources) -> Federation:  # noqa: ARG002
        self._check_room(1)
        groups = self._stays()
        return Federation.from_arrays(
            [self._points(seed, client, 0, concept) for client, concept in enumerate(groups)],
            groups=groups.tolist(),
            num_classes=2,
            test_fraction=self.test_fraction,
            validation_fraction=self.validation_fraction or 0.0,
            seed=seed,
        )

    def over_time(
        self,
        seed: int,
        sources: Sources,  # noqa: ARG002
        steps: int | None,
        schedule: Planned,
    ) -> Federation:
        """Build the federation with steps, 10 unless it is told."""
        rng = generator(seed, Stream.DATA)
        schedule = schedule or staying(self._stays(), steps)
        concepts = concepts_of(schedule, steps, self.clients, self._num_concepts, rng)
        self._check_room(concepts.shape[1])
        each = [
            [self._points(seed, client, step, concept) for client, concept in enumerate(row)]
            for step, row in enumerate(concepts.T)
        ]
        return Federation.over_time(each, concepts=concepts, num_classes=2)

    @property
    def _num_concepts(self) -> int:
        return len(THRESHOLDS) if self.stream == "sea" else 2

    def _stays(self) -> NDArray[np.int64]:
        """The concept (M,) of each client without a schedule."""
        return np.arange(self.clients) % self._num_concepts

    def _check_room(self, batches: int) -> None:
        points = self.clients * self.examples * batches
        check_memory(64 * points, f"scenario: {points:,} examples")

    def _points(
        self, seed: int, client: int, step: int, concept: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Points (n, features) of a client in a step, and their classes (n,)."""
        # The stream of the scenario itself has no numbers, so that clients are counted from 1.
        rng = generator(seed, Stream.DATA, client + 1, step)
        x = rng.random((self.examples, 3 if self.stream == "sea" else 2))
        if self.stream == "sea":
            x *= 10
            y = x[:, 1] + x[:, 2] > THRESHOLDS[concept]
        elif self.stream == "sine":
            y = (x[:, 1] <= np.sin(x[:, 0])) ^ bool(concept)
        else:
            *centre, radius = CIRCLES[concept]
            y = ((x - centre) ** 2).sum(axis=1) > radius**2
        noise = (0.1 if self.stream == "sea" else 0.0) if self.noise is None else self.noise
        y ^= rng.random(self.examples) < noise
        return x.astype(np.float32), y.astype(np.int64)
