"""Clients that are the owners of examples in the data."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umbel.checks import check, check_least
from umbel.data.arrays import Arrays
from umbel.data.federation import Federation
from umbel.data.scenarios.base import Scenario, check_apart, check_examples
from umbel.data.sources import Sources
from umbel.seeds import Stream, generator

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Natural(Scenario):
    """A client is an owner of examples in the source, such as a writer; no groups are planted.

    The defaults are the FEMNIST of Mehta & Shao 2023, V-A: 195 random writers among those with 40
    to 525 characters. Clients are named after their owners in the source. Test examples that the
    data directory has of its own, such as LEAF's, are kept; `split = "train+test"` divides all
    anew.
    """

    source: str = "femnist"  # data set whose examples have owners
    split: str = "train"  # of the source, or several together: "train+test"
    clients: int = 195  # M, drawn at random
    examples: tuple[int, ...] = (40, 525)  # fewest and most of a client; (): any number
    test_fraction: float = 0.15  # of each client's examples, if the source has none for the test
    validation_fraction: float | None = None  # of what is left for training, for validation

    def __post_init__(self) -> None:
        check_least(self, 1, "clients")
        check(len(self.examples) in (0, 2), "examples", self.examples, "() or (least, most)")
        check_examples(self.examples)
        check_apart(self.validation_fraction, self.test_fraction)

    def build(self, seed: int, sources: Sources) -> Federation:
        arrays = sources.load(self.source, self.split)
        expected = "a data set with an owner of each example, such as femnist"
        check(arrays.owners is not None, "source", self.source, expected)
        parts = [arrays]
        if self.split == "train" and sources.divides(self.source):
            parts += self._tests(arrays, sources)
        of_parts = [np.asarray(part.owners) for part in parts]
        owners, counts = np.unique(np.concatenate(of_parts), return_counts=True)
        trained = np.isin(owners, of_parts[0])
        low, high = self.examples or (1, int(counts.sum()))
        fitting = np.flatnonzero((low <= counts) & (counts <= high) & trained)
        expected = f"at most {len(fitting)}, the clients that have {low} to {high} examples"
        check(self.clients <= len(fitting), "clients", self.clients, expected)
        chosen = generator(seed, Stream.DATA).choice(fitting, self.clients, replace=False)
        names = owners[chosen]
        shards = [_shards(part, of, names) for part, of in zip(parts, of_parts, strict=True)]
        return Federation.from_arrays(
            shards[0],
            shards[1] if len(shards) > 1 else None,
            names=names.tolist(),
            num_classes=arrays.num_classes,
            test_fraction=self.test_fraction,
            validation_fraction=self.validation_fraction or 0.0,
            seed=seed,
        )

    def _tests(self, arrays: Arrays, sources: Sources) -> list[Arrays]:
        """The source's own test examples, if they are of the same owners."""
        tests = sources.load(self.source, "test", "source")
        arrays.check_alike(tests, "source", "test")
        if tests.owners is not None and np.isin(tests.owners, np.asarray(arrays.owners)).any():
            return [tests]
        log.warning(
            "source: the test examples of %r are of other owners than those for training, and not "
            "used: test_fraction = %s of each client's training examples are for the test",
            *(self.source, self.test_fraction),
        )
        return []


def _shards(
    arrays: Arrays, of: NDArray[np.str_], names: NDArray[np.str_]
) -> list[tuple[NDArray[np.float32], NDArray[np.int64]]]:
    """The examples of these owners, by the owner `of` each example."""
    order = np.argsort(of, kind="stable")
    starts, ends = (np.searchsorted(of[order], names, side) for side in ("left", "right"))
    rows = [order[start:end] for start, end in zip(starts, ends, strict=True)]
    return [(arrays.images(mine), arrays.y[mine]) for mine in rows]
