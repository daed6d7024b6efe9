"""Clients that are the owners of examples in the data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from umbel.checks import check
from umbel.data.federation import Federation
from umbel.data.scenarios.base import Scenario, check_examples, check_validation
from umbel.data.sources import Sources
from umbel.seeds import Stream, generator


@dataclass(frozen=True)
class Natural(Scenario):
    """A client is an owner of examples in the source, such as a writer; no groups are planted.

    The defaults are the FEMNIST of Mehta & Shao 2023, V-A: 195 random writers among those with 40
    to 525 characters. Clients are named after their owners in the source.
    """

    source: str = "femnist"  # data set whose examples have owners
    split: str = "train"  # of the source, or several together: "train+test"
    clients: int = 195  # M, drawn at random
    examples: tuple[int, ...] = (40, 525)  # fewest and most of a client; (): any number
    test_fraction: float = 0.15  # of each client's examples
    validation_fraction: float | None = None  # of what is left for training, for validation

    def __post_init__(self) -> None:
        check(self.clients >= 1, "clients", self.clients, "1 or more")
        check(len(self.examples) in (0, 2), "examples", self.examples, "() or (least, most)")
        check_examples(self.examples)
        check(0 < self.test_fraction < 1, "test_fraction", self.test_fraction, "in (0, 1)")
        check_validation(self.validation_fraction)

    def build(self, seed: int, sources: Sources) -> Federation:
        arrays = sources.load(self.source, self.split)
        expected = "a data set with an owner of each example, such as femnist"
        check(arrays.owners is not None, "source", self.source, expected)
        owners, of, counts = np.unique(
            np.asarray(arrays.owners), return_inverse=True, return_counts=True
        )
        low, high = self.examples or (1, len(of))
        fitting = np.flatnonzero((low <= counts) & (counts <= high))
        expected = f"at most {len(fitting)}, the clients that have {low} to {high} examples"
        check(self.clients <= len(fitting), "clients", self.clients, expected)
        chosen = generator(seed, Stream.DATA).choice(fitting, self.clients, replace=False)
        rows = np.split(np.argsort(of, kind="stable"), np.cumsum(counts)[:-1])
        return Federation.from_arrays(
            [(arrays.images(rows[owner]), arrays.y[rows[owner]]) for owner in chosen],
            names=[str(name) for name in owners[chosen]],
            num_classes=arrays.num_classes,
            test_fraction=self.test_fraction,
            validation_fraction=self.validation_fraction or 0.0,
            seed=seed,
        )
