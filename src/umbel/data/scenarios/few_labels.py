"""Clients that hold a few labels each, drawn at random, without planted groups."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from umbel.checks import check, check_least
from umbel.data.federation import Federation
from umbel.data.partition import Labels, check_few, client_sizes, draw
from umbel.data.scenarios.base import Scenario, check_apart, check_examples
from umbel.data.sources import Sources
from umbel.seeds import Stream, generator


@dataclass(frozen=True)
class FewLabels(Scenario):
    """Each client holds some random labels; clients that hold the same label share its images.

    There are no planted groups.
    """

    source: str = "digits"  # data set by name, such as digits or mnist
    split: str = "train"  # of the source, or several together: "train+test"
    clients: int = 20  # M
    labels_per_client: int = 3  # number of labels that a client holds
    examples: tuple[int, ...] = ()  # a client's: (n,), or uniform in (low, high); (): all there are
    test_fraction: float = 0.15  # of each client's examples
    validation_fraction: float | None = None  # of what is left for training, for validation

    def __post_init__(self) -> None:
        check_least(self, 1, "clients", "labels_per_client")
        check_examples(self.examples)
        check_apart(self.validation_fraction, self.test_fraction)

    def build(self, seed: int, sources: Sources) -> Federation:
        rng = generator(seed, Stream.DATA)
        arrays = sources.load(self.source, self.split)
        check_few(self.clients, len(arrays.y))
        number, classes = self.labels_per_client, arrays.num_classes
        check(number <= classes, "labels_per_client", number, f"at most {classes}")
        allowed = np.zeros((self.clients, classes), dtype=bool)
        for mine in allowed:
            mine[rng.choice(classes, number, replace=False)] = True
        if self.examples:
            rows = draw(arrays.y, client_sizes(self.examples, allowed, arrays.y, rng), allowed, rng)
        else:
            rows = _shared(arrays.y, allowed, rng)
        return Federation.from_arrays(
            [(arrays.images(mine), arrays.y[mine]) for mine in rows],
            num_classes=classes,
            test_fraction=self.test_fraction,
            validation_fraction=self.validation_fraction or 0.0,
            seed=seed,
        )


def _shared(y: Labels, allowed: NDArray[np.bool_], rng: np.random.Generator) -> list[Labels]:
    """Rows of each client; the rows of a label are divided equally among clients that hold it."""
    rows: list[list[Labels]] = [[] for _ in allowed]
    for label, holds in enumerate(allowed.T):
        holders = np.flatnonzero(holds)
        pool = rng.permutation(np.flatnonzero(y == label))
        pieces = np.array_split(pool, len(holders)) if len(holders) else []
        for client, piece in zip(holders, pieces, strict=True):
            rows[client].append(piece)
    for mine, labels in zip(rows, allowed, strict=True):
        if not any(map(len, mine)):
            label = int(labels.argmax())
            expected = f"few enough: the {allowed[:, label].sum()} that hold label {label} share "
            check(False, "clients", len(rows), f"{expected}{(y == label).sum()} examples")
    return [rng.permutation(np.concatenate(mine)) for mine in rows]
