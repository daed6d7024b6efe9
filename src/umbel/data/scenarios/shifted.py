"""Clients that draw from one data set; a shift makes groups differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from math import inf

import numpy as np
from numpy.typing import NDArray

from umbel.checks import check, check_least, within
from umbel.data.arrays import Arrays
from umbel.data.federation import Federation
from umbel.data.partition import Labels, apportioned, check_few, client_sizes, draw
from umbel.data.scenarios.base import (
    Scenario,
    check_apart,
    check_clients,
    check_examples,
    check_normalise,
    check_splits,
)
from umbel.data.shifts import Group, Images, Rotate, Shift
from umbel.data.sources import Sources
from umbel.seeds import Stream, generator


@dataclass(frozen=True)
class Shifted(Scenario):
    """Examples of `source`, divided among clients without replacement, and shifted by group.

    The test examples of a client are a part of its examples. With `test_split`, they come from that
    split, which is divided in proportion to the clients' training examples. With `per_group` the
    whole source is divided in each group, so that an image occurs once in every group.
    """

    source: str = "digits"  # data set by name, such as digits or mnist
    split: str = "train"  # of the source, or several together: "train+test"
    test_split: str | None = None  # None: test examples are set apart from each client's own
    clients: int = 20  # M
    shares: tuple[float, ...] = ()  # share of the clients in each group; (): equal
    per_group: bool = False  # whether each group is dealt the whole source
    examples: tuple[int, ...] = ()  # a client's: (n,), or uniform in (low, high); (): alike
    test_fraction: float = 0.15  # of each client's examples; not used with a test_split
    label_alpha: float | None = None  # Dirichlet concentration of each client's labels; None: IID
    standardise: bool = False  # pixels with mean 0, standard deviation 1 over `split`; not 0 to 1
    normalise: tuple[float, ...] = ()  # (mean, std): pixels of 0 to 1 minus mean, divided by std
    shift: Shift = field(default_factory=Rotate)  # how the groups differ
    validation_fraction: float | None = None  # of what is left for training, for validation

    def __post_init__(self) -> None:
        check_splits(self.split, self.test_split)
        check_least(self, 1, "clients")
        check(all(s > 0 for s in self.shares), "shares", self.shares, "positive numbers")
        small = self.clients * sum(self.shares) < inf
        check(small, "shares", self.shares, "numbers with a finite sum")
        check_examples(self.examples)
        check_apart(self.validation_fraction, self.test_fraction)
        check_normalise(self.normalise)
        alone = not (self.normalise and self.standardise)
        check(alone, "normalise", self.normalise, "(), as `standardise` is true")
        alpha = self.label_alpha
        check(alpha is None or alpha > 0, "label_alpha", alpha, "more than 0")

    def build(self, seed: int, sources: Sources) -> Federation:
        rng = generator(seed, Stream.DATA)
        arrays = sources.load(self.source, self.split)
        if self.standardise:
            arrays = arrays.standardised(like=arrays)
        if self.normalise:
            arrays = arrays.normalised(*self.normalise)
        with within("shift", [each.name for each in fields(self.shift)]):
            planted = self.shift.make(arrays.num_classes, rng)
        deals = len(planted) if self.per_group else 1
        check_few(self.clients, deals * len(arrays.y))
        arrays.check_room(deals)
        counts = self._counts(len(planted))
        of_clients = [group for group, n in zip(planted, counts, strict=True) for _ in range(n)]
        allowed = np.array([_holds(group, arrays.num_classes) for group in of_clients])
        sizes, rows = [], []
        for deal in self._deals(counts):
            sizes.append(client_sizes(self.examples, allowed[deal], arrays.y, rng))
            rows += draw(arrays.y, sizes[-1], allowed[deal], rng, self.label_alpha)
        test = None
        if self.test_split is not None:
            even = self.label_alpha is None and bool(allowed.all())
            check(even, "test_split", self.test_split, "None, as some clients lack some labels")
            tests = sources.load(self.source, self.test_split, "test_split")
            arrays.check_alike(tests, "test_split", self.test_split)
            tests = tests.normalised(arrays.centre, arrays.spread)
            test = _shards(tests, _dealt_evenly(tests, sizes, rng), of_clients, (seed, 2))
        numbers = [n if group.number is None else group.number for n, group in enumerate(planted)]
        return Federation.from_arrays(
            _shards(arrays, rows, of_clients, (seed, 1)),
            test,
            groups=np.repeat(numbers, counts).tolist(),
            num_classes=arrays.num_classes,
            test_fraction=self.test_fraction,
            validation_fraction=self.validation_fraction or 0.0,
            seed=seed,
        )

    def _counts(self, num_groups: int) -> Labels:
        """The number of clients of each group."""
        shares = self.shares or (1.0,) * num_groups
        check(len(shares) == num_groups, "shares", self.shares, f"one for {num_groups} groups")
        check_clients(self.clients, num_groups, "groups")
        counts = apportioned(self.clients, shares)
        for group, count in enumerate(counts.tolist()):
            expected = f"enough for a client of group {group} among {self.clients}"
            check(count > 0, "shares", shares[group], expected)
        return counts

    def _deals(self, counts: Labels) -> list[slice]:
        """The clients that share the source: all, or the `counts` clients of each group."""
        if not self.per_group:
            return [slice(self.clients)]
        ends = np.cumsum(counts)
        return [slice(end - count, end) for end, count in zip(ends, counts, strict=True)]


def _holds(group: Group, num_classes: int) -> NDArray[np.bool_]:
    """(C,) whether the clients of a group may hold each label."""
    labels = range(num_classes) if group.labels is None else group.labels
    return np.isin(np.arange(num_classes), list(labels))


def _dealt_evenly(
    arrays: Arrays, sizes: Sequence[Labels], rng: np.random.Generator
) -> list[Labels]:
    """Rows of each client: every deal divides all rows in proportion to the clients' sizes."""
    rows: list[Labels] = []
    for deal in sizes:
        ends = np.cumsum(apportioned(len(arrays.y), deal))
        rows += np.split(rng.permutation(len(arrays.y)), ends[:-1])
    return rows


def _shards(
    arrays: Arrays, rows: Sequence[Labels], groups: Sequence[Group], seeds: tuple[int, int]
) -> list[tuple[Images, Labels]]:
    """The examples in these rows, shifted by the group of each client, and then normalised.

    Random draws of a group depend only on the client; `seeds` are the scenario's seed, and one that
    differs between training and test examples.
    """
    (seed, part), plain = seeds, arrays.normalised(0.0, 1.0)
    shards = []
    for client, (group, mine) in enumerate(zip(groups, rows, strict=True)):
        rng = generator(seed, Stream.DATA, client, part)
        x, y = group.transform(plain.images(mine), arrays.y[mine], rng)
        shards.append((arrays.scaled(x), y))
    return shards
