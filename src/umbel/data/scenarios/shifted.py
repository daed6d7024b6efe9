"""Clients that draw from one data set, and differ from group to group by a shift."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from umbel.checks import check
from umbel.data.federation import Federation
from umbel.data.partition import client_sizes, draw, group_sizes
from umbel.data.scenarios.base import Scenario
from umbel.data.shifts import Group, Rotate, Shift
from umbel.data.sources import Sources
from umbel.seeds import Stream, generator


@dataclass(frozen=True)
class Shifted(Scenario):
    """Examples of `source`, without replacement, dealt to clients and shifted by group."""

    source: str = "digits"
    split: str = "train"  # which split of the source the clients share
    clients: int = 20  # M
    shares: tuple[float, ...] = ()  # share of the clients in each group; (): equal
    examples: tuple[int, ...] = ()  # a client's: (n,), or uniform in (low, high); (): all, equally
    test_fraction: float = 0.15  # of each client's examples
    label_alpha: float | None = None  # Dirichlet concentration of each client's labels; None: IID
    shift: Shift = field(default_factory=Rotate)

    def __post_init__(self) -> None:
        check(self.clients >= 1, "clients", self.clients, "1 or more")
        check(all(s > 0 for s in self.shares), "shares", self.shares, "positive numbers")
        check(len(self.examples) <= 2, "examples", self.examples, "(), (n,) or (low, high)")
        check(
            sorted(self.examples) == list(self.examples), "examples", self.examples, "low to high"
        )
        check(0 < self.test_fraction < 1, "test_fraction", self.test_fraction, "in (0, 1)")
        alpha = self.label_alpha
        check(alpha is None or alpha > 0, "label_alpha", alpha, "more than 0")

    def build(self, seed: int, sources: Sources) -> Federation:
        rng = generator(seed, Stream.DATA)
        arrays = sources.load(self.source, self.split)
        planted = self.shift.make(arrays.num_classes, rng)
        shares = self.shares or (1.0,) * len(planted)
        check(len(shares) == len(planted), "shares", self.shares, f"one for {len(planted)} groups")
        expected = f"at least one for each of {len(planted)} groups"
        check(self.clients >= len(planted), "clients", self.clients, expected)
        counts = group_sizes(self.clients, shares)
        groups = [group for group, count in enumerate(counts) for _ in range(count)]
        sizes = client_sizes(self.clients, self.examples, len(arrays.y), rng)
        allowed = np.array([_holds(planted[group], arrays.num_classes) for group in groups])
        rows = draw(arrays.y, sizes, allowed, rng, self.label_alpha)
        shards = [
            planted[group].transform(arrays.images(mine), arrays.y[mine])
            for group, mine in zip(groups, rows, strict=True)
        ]
        return Federation.from_arrays(
            shards,
            groups=groups,
            num_classes=arrays.num_classes,
            test_fraction=self.test_fraction,
            seed=seed,
        )


def _holds(group: Group, num_classes: int) -> NDArray[np.bool_]:
    """(C,) which labels the clients of a group may hold."""
    labels = range(num_classes) if group.labels is None else group.labels
    return np.isin(np.arange(num_classes), list(labels))
