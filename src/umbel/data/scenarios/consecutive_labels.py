"""Clients that hold a few labels in a row: FedProx's FEMNIST, which LCFL's paper uses."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umbel.checks import check, check_least
from umbel.data.federation import Federation
from umbel.data.partition import Labels
from umbel.data.scenarios.base import Scenario, check_apart
from umbel.data.sources import Sources
from umbel.seeds import Stream, generator


@dataclass(frozen=True)
class ConsecutiveLabels(Scenario):
    """Client u holds the labels u, u + 1 and u + 2, modulo their number, as many of each.

    This is the recipe of FedProx (Li et al. 2020) for FEMNIST: a client's number of examples is 5
    plus a log-normal number. Clients with the same labels are a planted group. No example is used
    twice; a label that has too few is divided in proportion.
    """

    source: str = "digits"  # data set by name, such as letters
    split: str = "train"  # of the source, or several together: "train+test"
    clients: int = 20  # M
    labels_per_client: int = 3  # number of labels that a client holds
    # mean and deviation of the logarithm of a client's number of examples beyond 5
    log_examples: tuple[float, float] = (4.0, 1.0)
    test_fraction: float = 0.1  # of each client's examples
    validation_fraction: float | None = None  # of what is left for training, for validation

    def __post_init__(self) -> None:
        check_least(self, 1, "clients", "labels_per_client")
        mean, deviation = self.log_examples
        fine = mean <= 20 and 0 <= deviation <= 5
        check(fine, "log_examples", self.log_examples, "a mean up to 20, and a deviation up to 5")
        check_apart(self.validation_fraction, self.test_fraction)

    def build(self, seed: int, sources: Sources) -> Federation:
        rng = generator(seed, Stream.DATA)
        arrays = sources.load(self.source, self.split)
        number, classes = self.labels_per_client, arrays.num_classes
        check(number <= classes, "labels_per_client", number, f"at most {classes}")
        wanted = (rng.lognormal(*self.log_examples, self.clients) + 5) / number
        rows: list[list[Labels]] = [[] for _ in wanted]
        for label in range(classes):
            holders = [c for c in range(self.clients) if (label - c) % classes < number]
            pool = rng.permutation(np.flatnonzero(arrays.y == label))
            ends = np.cumsum(_divided(len(pool), wanted[holders], label))
            pieces = np.split(pool[: ends[-1]], ends[:-1]) if holders else []
            for client, piece in zip(holders, pieces, strict=True):
                rows[client].append(piece)
        mixed = [rng.permutation(np.concatenate(mine)) for mine in rows]
        return Federation.from_arrays(
            [(arrays.images(mine), arrays.y[mine]) for mine in mixed],
            groups=[client % classes for client in range(self.clients)],
            num_classes=classes,
            test_fraction=self.test_fraction,
            validation_fraction=self.validation_fraction or 0.0,
            seed=seed,
        )


def _divided(available: int, wanted: NDArray[np.float64], label: int) -> Labels:
    """The number of a label's examples that each client gets, at least two, in proportion."""
    expected = f"few enough: {len(wanted)} that hold label {label} share {available} examples"
    check(2 * len(wanted) <= available, "clients", len(wanted), expected)
    share, counts = 1.0, np.full(len(wanted), available + 1)
    while counts.sum() > available and len(wanted):
        counts = np.maximum(2, np.floor(share * wanted)).astype(np.int64)
        share *= min(0.99, available / max(1, counts.sum()))
    return counts
