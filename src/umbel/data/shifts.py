"""Shifts: transformations of the examples of each group, which make groups differ."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from math import factorial
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from umbel.checks import check, check_least
from umbel.settings import MOST_ITEMS, Settings

Images: TypeAlias = NDArray[np.float32]  # (n, channels, height, width)
Labels: TypeAlias = NDArray[np.int64]  # (n,)


@dataclass(frozen=True)
class Group:
    """One planted group: the labels that its clients hold, and a transformation of their examples.

    `transform` is applied to the examples of one client, with a random generator for that client.
    Groups with the same `number` count as one group when clusters are scored.
    """

    transform: Callable[[Images, Labels, np.random.Generator], tuple[Images, Labels]]
    labels: tuple[int, ...] | None = None  # None: all
    number: int | None = None  # None: its position among the groups


@dataclass(frozen=True)
class Shift(Settings, ABC):
    """A family of planted groups."""

    @abstractmethod
    def make(self, num_classes: int, rng: np.random.Generator) -> Sequence[Group]:
        """The groups, drawn once for the whole federation."""


@dataclass(frozen=True)
class Rotate(Shift):
    """Each group's images are rotated by its angle, in degrees, counter-clockwise.

    Multiples of 90 degrees are exact. Other angles use linear interpolation, and pixels from
    outside the image are 0. Angles with the same number in `group_of` count as one group when
    clusters are scored.
    """

    # degrees by which each group's images are turned
    angles: tuple[float, ...] = (0.0, 90.0, 180.0, 270.0)
    # the group of each angle, numbered from 0; (): one group per angle
    group_of: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        check(bool(self.angles), "angles", self.angles, "a list with at least one angle")
        numbers = sorted(set(self.group_of))
        fine = len(self.group_of) in (0, len(self.angles)) and numbers == list(range(len(numbers)))
        expected = f"a number for each of {len(self.angles)} angles, counted from 0 without gaps"
        check(fine, "group_of", self.group_of, expected)

    def make(self, num_classes: int, rng: np.random.Generator) -> Sequence[Group]:  # noqa: ARG002
        numbers = self.group_of or range(len(self.angles))
        turns = zip(self.angles, numbers, strict=True)
        return [replace(rotated(angle), number=number) for angle, number in turns]


@dataclass(frozen=True)
class SwapLabels(Shift):
    """In each group two labels are swapped, a different random pair in each group.

    Two pairs may share a label, such as (0, 5) and (5, 8), unless they are `disjoint`. With `pairs`
    there is a group for each of these, and () keeps its labels.
    """

    groups: int = 4  # number of groups
    disjoint: bool = False  # whether no label is swapped in more than one group
    # the labels to swap in each group, instead of random ones; (): at random
    pairs: tuple[tuple[int, ...], ...] = ()

    def __post_init__(self) -> None:
        check_least(self, 1, "groups")
        fine = all(len(pair) in (0, 2) and min(pair, default=0) >= 0 for pair in self.pairs)
        check(fine, "pairs", self.pairs, "lists of two labels, or of none")

    def make(self, num_classes: int, rng: np.random.Generator) -> Sequence[Group]:
        if self.pairs:
            expected = f"below {num_classes}, the number of classes"
            most = max((label for pair in self.pairs for label in pair), default=0)
            check(most < num_classes, "pairs", most, expected)
            tables = [_swap(num_classes, *pair) for pair in self.pairs]
            return [relabelled(table) for table in tables]
        pairs = self._disjoint(num_classes, rng) if self.disjoint else self._any(num_classes, rng)
        return [relabelled(_swap(num_classes, first, second)) for first, second in pairs]

    def _any(self, num_classes: int, rng: np.random.Generator) -> list[tuple[int, int]]:
        pairs = list(combinations(range(num_classes), 2))
        expected = f"at most the number of pairs of {num_classes} labels, {len(pairs)}"
        check(self.groups <= len(pairs), "groups", self.groups, expected)
        return [pairs[number] for number in rng.choice(len(pairs), self.groups, replace=False)]

    def _disjoint(self, num_classes: int, rng: np.random.Generator) -> list[tuple[int, int]]:
        most = num_classes // 2
        expected = f"at most {most}, the number of disjoint pairs of {num_classes} labels"
        check(self.groups <= most, "groups", self.groups, expected)
        drawn = rng.permutation(num_classes)[: 2 * self.groups].reshape(-1, 2)
        return [(int(first), int(second)) for first, second in drawn]


@dataclass(frozen=True)
class PermuteLabels(Shift):
    """In each group labels are renamed: y becomes (y + offset) mod the number of classes.

    Without offsets, each of `groups` groups renames labels by another random permutation, except
    for the first group, which keeps its labels.
    """

    groups: int = 4  # number of groups
    # what is added to each group's labels, modulo their number; None: at random
    offsets: tuple[int, ...] | None = None

    def __post_init__(self) -> None:
        check(1 <= self.groups <= MOST_ITEMS, "groups", self.groups, f"in 1 to {MOST_ITEMS:,}")
        check(self.offsets is None or bool(self.offsets), "offsets", self.offsets, "a filled list")

    def make(self, num_classes: int, rng: np.random.Generator) -> Sequence[Group]:
        names = np.arange(num_classes)
        if self.offsets is not None:
            turns = (offset % num_classes for offset in self.offsets)
            return [relabelled((names + turn) % num_classes) for turn in turns]
        # Groups are at most 10,000, fewer than the permutations of eight labels.
        most = factorial(min(num_classes, 8))
        expected = f"at most {most}, the number of permutations of {num_classes} labels"
        check(self.groups <= most, "groups", self.groups, expected)
        tables = {names.tobytes(): names}
        while len(tables) < self.groups:
            table = rng.permutation(num_classes)
            tables[table.tobytes()] = table
        return [relabelled(table) for table in tables.values()]


@dataclass(frozen=True)
class LabelGroups(Shift):
    """Each group holds examples of only some labels; the groups' labels are random and disjoint."""

    groups: int = 5  # number of groups
    labels_per_group: int = 2  # number of labels that a group holds

    def __post_init__(self) -> None:
        check_least(self, 1, "groups", "labels_per_group")

    def make(self, num_classes: int, rng: np.random.Generator) -> Sequence[Group]:
        wanted = self.groups * self.labels_per_group
        expected = f"at most {num_classes // self.labels_per_group}: there are {num_classes} labels"
        check(wanted <= num_classes, "groups", self.groups, expected)
        drawn = rng.permutation(num_classes)[:wanted].reshape(self.groups, -1)
        return [Group(lambda x, y, _: (x, y), tuple(map(int, labels))) for labels in drawn]


@dataclass(frozen=True)
class LabelsAndTurns(Shift):
    """One group for each list of labels and each angle: images of these labels, so rotated.

    All angles of the first list come first. Angles are as in `Rotate`.
    """

    # label sets of the groups
    labels: tuple[tuple[int, ...], ...] = ((0, 1, 2, 3, 4), (5, 6, 7, 8, 9))
    # degrees by which images are turned, in a group for each label set
    angles: tuple[float, ...] = (0.0, 90.0)

    def __post_init__(self) -> None:
        held = [label for mine in self.labels for label in mine]
        fine = bool(held) and all(self.labels) and min(held) >= 0 and len(set(held)) == len(held)
        check(fine, "labels", self.labels, "lists of different labels, each label in one list")
        check(bool(self.angles), "angles", self.angles, "a list with at least one angle")

    def make(self, num_classes: int, rng: np.random.Generator) -> Sequence[Group]:  # noqa: ARG002
        expected = f"below {num_classes}, the number of classes"
        check(max(map(max, self.labels)) < num_classes, "labels", self.labels, expected)
        pairs = product(self.labels, self.angles)
        return [replace(rotated(angle), labels=mine) for mine, angle in pairs]


@dataclass(frozen=True)
class MixedTurns(Shift):
    """Two groups are rotated by one angle each, and a third group mixes them.

    In the third group each image is rotated by the first angle with probability kappa, otherwise by
    the second (Kim et al. 2024, F.5.2): if kappa is close to 0 or 1, this group is hard to
    distinguish from one of the others. Angles are as in `Rotate`.
    """

    angles: tuple[float, ...] = (0.0, 180.0)  # the two angles of turned images, in degrees
    kappa: float = 0.5  # probability of the first angle in the third group

    def __post_init__(self) -> None:
        check(len(self.angles) == 2, "angles", self.angles, "two angles")
        check(0 <= self.kappa <= 1, "kappa", self.kappa, "in [0, 1]")

    def make(self, num_classes: int, rng: np.random.Generator) -> Sequence[Group]:  # noqa: ARG002
        return [rotated(self.angles[0]), rotated(self.angles[1]), Group(self._mixed)]

    def _mixed(self, x: Images, y: Labels, rng: np.random.Generator) -> tuple[Images, Labels]:
        first, second = (turned(x, angle) for angle in self.angles)
        chosen = rng.random(len(x)) < self.kappa
        return np.where(chosen[:, None, None, None], first, second), y


@dataclass(frozen=True)
class Contrast(Shift):
    """Each group's pixels x become gain x + offset: features differ, and labels do not.

    With pixels of 0 to 1 the defaults are images as they are, negatives, and faint ones of both.
    """

    gains: tuple[float, ...] = (1.0, -1.0, 0.3, -0.3)  # factor of each group's pixels
    offsets: tuple[float, ...] = (0.0, 1.0, 0.0, 1.0)  # what is then added to them

    def __post_init__(self) -> None:
        check(bool(self.gains), "gains", self.gains, "a list with at least one factor")
        expected = f"{len(self.gains)} numbers, one for each of the gains"
        check(len(self.offsets) == len(self.gains), "offsets", self.offsets, expected)

    def make(self, num_classes: int, rng: np.random.Generator) -> Sequence[Group]:  # noqa: ARG002
        return [_contrasted(*both) for both in zip(self.gains, self.offsets, strict=True)]


SHIFTS: dict[str, type[Shift]] = {
    "rotate": Rotate,
    "swap-labels": SwapLabels,
    "permute-labels": PermuteLabels,
    "label-groups": LabelGroups,
    "labels-and-turns": LabelsAndTurns,
    "mixed-turns": MixedTurns,
    "contrast": Contrast,
}


def turned(x: Images, angle: float) -> Images:
    """Images rotated counter-clockwise by an angle in degrees, with the same size."""
    quarters, rest = divmod(angle, 90)
    if rest == 0 and (quarters % 2 == 0 or x.shape[2] == x.shape[3]):
        return np.ascontiguousarray(np.rot90(x, int(quarters), axes=(2, 3)))
    from scipy.ndimage import rotate

    result: Images = rotate(x, angle, axes=(3, 2), reshape=False, order=1)
    return result


def rotated(angle: float) -> Group:
    """The group whose images are rotated by this angle."""
    return Group(lambda x, y, _: (turned(x, angle), y))


def relabelled(table: NDArray[np.int64]) -> Group:
    """The group in which label y becomes table[y]."""
    return Group(lambda x, y, _: (x, table[y]))


def _contrasted(gain: float, offset: float) -> Group:
    """The group whose pixels x become gain x + offset."""
    return Group(lambda x, y, _: ((gain * x + offset).astype(np.float32), y))


def _swap(num_classes: int, *pair: int) -> NDArray[np.int64]:
    table = np.arange(num_classes)
    table[list(pair)] = pair[::-1]
    return table
