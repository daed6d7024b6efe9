"""Clients that draw from one data set; a shift makes groups differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from itertools import islice
from math import inf

import numpy as np
from numpy.typing import NDArray

from umbel.checks import check, check_least, within
from umbel.data.arrays import Arrays
from umbel.data.federation import Federation
from umbel.data.partition import Labels, apportioned, check_few, client_sizes, draw
from umbel.data.scenarios.base import (
    Planned,
    Scenario,
    check_apart,
    check_clients,
    check_examples,
    check_normalise,
    check_splits,
    staying,
)
from umbel.data.schedules import concepts_of
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
        arrays, planted = self._loaded(sources, rng)
        counts = self._counts(len(planted))
        numbers = np.repeat(np.arange(len(planted)), counts)
        of_clients = [planted[number] for number in numbers.tolist()]
        rows, sizes = self._dealt(arrays, planted, numbers, rng)
        test = None
        if self.test_split is not None:
            whole = all(_holds(group, arrays.num_classes).all() for group in planted)
            even = self.label_alpha is None and whole
            check(even, "test_split", self.test_split, "None, as some clients lack some labels")
            tests = sources.load(self.source, self.test_split, "test_split")
            arrays.check_alike(tests, "test_split", self.test_split)
            tests = tests.normalised(arrays.centre, arrays.spread)
            test = _shards(tests, _dealt_evenly(tests, sizes, rng), of_clients, (seed, 2))
        return Federation.from_arrays(
            _shards(arrays, rows, of_clients, (seed, 1)),
            test,
            groups=_scored(planted)[numbers].tolist(),
            num_classes=arrays.num_classes,
            test_fraction=self.test_fraction,
            validation_fraction=self.validation_fraction or 0.0,
            seed=seed,
        )

    def over_time(
        self, seed: int, sources: Sources, steps: int | None, schedule: Planned
    ) -> Federation:
        """Build the federation with steps: concept c of a schedule is group c of the shift.

        Each client gets `examples` in each step, and none of them again. Without a schedule it
        stays in one group, and there are 10 steps unless it is told.
        """
        expected = "None: with time, clients are tested on their examples of the next step"
        check(self.test_split is None, "test_split", self.test_split, expected)
        rng = generator(seed, Stream.DATA)
        arrays, planted = self._loaded(sources, rng)
        if not schedule:
            groups = np.repeat(np.arange(len(planted)), self._counts(len(planted)))
            schedule = staying(groups, steps)
        concepts = concepts_of(schedule, steps, self.clients, len(planted), rng)
        # One step after another, and its clients in order.
        numbers = concepts.T.ravel()
        rows, _ = self._dealt(arrays, planted, numbers, rng)
        of_each = [planted[number] for number in numbers.tolist()]
        shards = iter(_shards(arrays, rows, of_each, (seed, 1)))
        return Federation.over_time(
            [list(islice(shards, self.clients)) for _ in concepts.T],
            concepts=_scored(planted)[concepts],
            num_classes=arrays.num_classes,
        )

    def _loaded(self, sources: Sources, rng: np.random.Generator) -> tuple[Arrays, Sequence[Group]]:
        """The source, and the groups."""
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
        return arrays, planted

    def _dealt(
        self, arrays: Arrays, planted: Sequence[Group], numbers: Labels, rng: np.random.Generator
    ) -> tuple[list[Labels], list[Labels]]:
        """Rows for each of `numbers`, which say its group, and their counts by deal.

        A deal is the whole source: there is one for all, or one for each group that occurs.
        """
        allowed = np.array([_holds(group, arrays.num_classes) for group in planted])[numbers]
        dealt = numbers if self.per_group else np.zeros_like(numbers)
        rows, sizes = [np.zeros(0, dtype=np.int64)] * len(numbers), []
        for deal in np.unique(dealt):
            (places,) = np.nonzero(dealt == deal)
            sizes.append(client_sizes(self.examples, allowed[places], arrays.y, rng))
            drawn = draw(arrays.y, sizes[-1], allowed[places], rng, self.label_alpha)
            for place, mine in zip(places, drawn, strict=True):
                rows[place] = mine
        return rows, sizes

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


def _scored(planted: Sequence[Group]) -> Labels:
    """The number by which each group is scored."""
    return np.array(
        [n if group.number is None else group.number for n, group in enumerate(planted)]
    )


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
