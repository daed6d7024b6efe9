"""Groups that hold some of the classes each, so that two groups may have classes in common."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from umbel.checks import check
from umbel.data.arrays import Arrays
from umbel.data.federation import Federation
from umbel.data.partition import Labels, check_few, deal_alike, equal_groups
from umbel.data.scenarios.base import Scenario, check_apart, check_clients, check_splits
from umbel.data.shifts import Images
from umbel.data.sources import Sources
from umbel.seeds import Stream, generator

FIG_2_MNIST = (
    (0, 1, 2, 3, 4, 5, 6, 8),
    (0, 1, 2, 3, 4, 6, 7, 9),
    (0, 1, 2, 4, 5, 6, 7, 9),
    (0, 1, 2, 3, 4, 5, 6, 7),
)
"""Lin et al. 2024, Fig. 2: the digits of clusters A, B, C and D."""


@dataclass(frozen=True)
class OverlappingLabels(Scenario):
    """Each group holds its own list of labels; groups with a label share its images.

    Lin et al. 2024, III-A.1 and Fig. 2: the images of a label are divided equally among the groups
    that hold it, and the images of a group are divided equally and at random among its clients.
    Every client's test examples have the label proportions of its training examples, and their
    number is as large as the scarcest label allows. The paper's networks have one output for each
    label of a group. This is `local_labels`: a label is then its position in its group's list.
    """

    source: str = "digits"  # data set by name, such as digits or mnist
    split: str = "train"  # of the source, or several together: "train+test"
    test_split: str | None = None  # None: test images are those that training leaves of `split`
    clients: int = 20  # M, divided equally among the groups
    labels: tuple[tuple[int, ...], ...] = FIG_2_MNIST  # labels of each group
    images_per_label: int | Literal["all"] = 144  # for training, in all groups together
    test_fraction: float = 0.15  # of each label; where there are "all" images and no test_split
    local_labels: bool = True  # False: labels have one meaning in all groups
    validation_fraction: float | None = None  # of what is left for training, for validation

    def __post_init__(self) -> None:
        check_splits(self.split, self.test_split)
        fine = bool(self.labels) and all(
            mine and min(mine) >= 0 and len(set(mine)) == len(mine) for mine in self.labels
        )
        check(fine, "labels", self.labels, "a list of different labels for each group")
        check_clients(self.clients, len(self.labels), "groups")
        limit = self.images_per_label
        check(limit == "all" or limit >= 1, "images_per_label", limit, '1 or more, or "all"')
        check_apart(self.validation_fraction, self.test_fraction)

    def build(self, seed: int, sources: Sources) -> Federation:
        rng = generator(seed, Stream.DATA)
        arrays = sources.load(self.source, self.split)
        check_few(self.clients, len(arrays.y))
        expected = f"below {arrays.num_classes}, the number of classes"
        check(max(map(max, self.labels)) < arrays.num_classes, "labels", self.labels, expected)
        held = sorted(set().union(*self.labels))
        used, spare = self._divided(_pools(arrays, held, rng), held)
        counts = equal_groups(self.clients, len(self.labels))
        rows: list[Labels] = []
        for group, (pile, count) in enumerate(zip(self._piles(used, held), counts, strict=True)):
            expected = f"few enough: the {count} of group {group} share {len(pile)} examples"
            check(count <= len(pile), "clients", self.clients, expected)
            rows += np.array_split(rng.permutation(pile), count)
        tests = arrays
        if self.test_split is not None:
            tests = sources.load(self.source, self.test_split, "test_split")
            arrays.check_alike(tests, "test_split", self.test_split)
            spare = _pools(tests, held, rng)
            expected = "a split with images of every label held"
            check(all(map(len, spare)), "test_split", self.test_split, expected)
        mixes = [np.bincount(arrays.y[mine], minlength=arrays.num_classes)[held] for mine in rows]
        groups = np.repeat(np.arange(len(self.labels)), counts).tolist()
        return Federation.from_arrays(
            self._shards(arrays, rows, groups),
            self._shards(tests, deal_alike(spare, np.array(mixes)), groups),
            groups=groups,
            num_classes=max(map(len, self.labels)) if self.local_labels else arrays.num_classes,
            validation_fraction=self.validation_fraction or 0.0,
            seed=seed,
        )

    def _divided(
        self, pools: Sequence[Labels], held: Sequence[int]
    ) -> tuple[list[Labels], list[Labels]]:
        """Rows of each label for training, and the remaining rows."""
        cuts = []
        must_stay = 1 if self.test_split is None else 0
        for label, pool in zip(held, pools, strict=True):
            most, wanted = len(pool) - must_stay, self.images_per_label
            if wanted == "all":
                wanted = len(pool) - must_stay * max(1, round(self.test_fraction * len(pool)))
            expected = f"at most {most}: there are {len(pool)} images of label {label}"
            expected += ", and some must be left for the test; or set test_split" * must_stay
            check(0 < wanted <= most, "images_per_label", self.images_per_label, expected)
            cuts.append(wanted)
        used = [pool[:cut] for pool, cut in zip(pools, cuts, strict=True)]
        return used, [pool[cut:] for pool, cut in zip(pools, cuts, strict=True)]

    def _piles(self, pools: Sequence[Labels], held: Sequence[int]) -> list[Labels]:
        """Rows of each group; the rows of a label are divided equally among groups that hold it."""
        piles: list[list[Labels]] = [[] for _ in self.labels]
        for pool, label in zip(pools, held, strict=True):
            groups = [group for group, mine in enumerate(self.labels) if label in mine]
            ends = len(pool) * np.arange(1, len(groups)) // len(groups)  # 1666, 1667 and 1667
            for group, piece in zip(groups, np.split(pool, ends), strict=True):
                piles[group].append(piece)
        return [np.concatenate(pile) for pile in piles]

    def _shards(
        self, arrays: Arrays, rows: Sequence[Labels], groups: Sequence[int]
    ) -> list[tuple[Images, Labels]]:
        """The examples in these rows, with labels as numbered in each client's group."""
        names = np.tile(np.arange(arrays.num_classes), (len(self.labels), 1))
        if self.local_labels:
            for table, mine in zip(names, self.labels, strict=True):
                table[list(mine)] = np.arange(len(mine))
        return [
            (arrays.images(mine), names[group][arrays.y[mine]])
            for group, mine in zip(groups, rows, strict=True)
        ]


def _pools(arrays: Arrays, labels: Sequence[int], rng: np.random.Generator) -> list[Labels]:
    """Rows of each label, shuffled."""
    return [rng.permutation(np.flatnonzero(arrays.y == label)) for label in labels]
