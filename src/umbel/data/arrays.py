"""Decoded examples of a data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from umbel.checks import UsageError, check, check_memory
from umbel.summary import in_short


@dataclass(frozen=True)
class Arrays:
    """Decoded examples."""

    x: NDArray[Any]  # (n, channels, height, width): uint8 in 0 to 255, or floats in 0 to 1
    y: NDArray[np.int64]  # (n,)
    num_classes: int
    _: KW_ONLY
    centre: float = 0.0  # mean that is subtracted from images
    spread: float = 1.0  # standard deviation by which images are divided afterwards
    owners: NDArray[np.str_] | None = None  # (n,) the owner of each example, if known
    classes: tuple[str, ...] = ()  # the names of the classes, if they are known

    __repr__ = in_short

    def check_alike(self, other: Arrays, setting: str, split: str) -> None:
        """Raise `UsageError` unless images have one shape in both, and labels one meaning."""
        shape, shape_there = self.x.shape[1:], other.x.shape[1:]
        expected = f"of images of shape {shape}, as the first split: it has {shape_there}"
        check(shape_there == shape, setting, split, expected)
        there, here = other.num_classes, self.num_classes
        expected = f"of {here} classes, as the first split: it has {there}"
        check(there == here, setting, split, expected)
        unlike = (
            f"{n} is {one!r} in the first split, and {two!r} there"
            for n, (one, two) in enumerate(zip(self.classes, other.classes, strict=False))
            if one != two
        )
        if differing := next(unlike, None):
            raise UsageError(f"{setting}: {split!r} has other classes: {differing}")

    def images(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """The images of these rows as floats: in 0 to 1, unless they are normalised."""
        picked = np.asarray(self.x[rows], dtype=np.float32) / np.float32(self._white)
        return self.scaled(picked)

    def scaled(self, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Images with values in 0 to 1, normalised."""
        if (self.centre, self.spread) == (0.0, 1.0):
            return x
        return (x - np.float32(self.centre)) / np.float32(self.spread)

    def check_room(self, times: int) -> None:
        """Raise `UsageError` if this many copies of all images as floats exceed memory."""
        said = f"scenario: {times:,} times all {self.x.shape[0]:,} examples"
        check_memory(2 * times * self.x.size * np.dtype(np.float32).itemsize, said)

    def normalised(self, centre: float, spread: float) -> Arrays:
        """The same, with values in 0 to 1 minus `centre`, divided by `spread`."""
        return replace(self, centre=centre, spread=spread)

    def standardised(self, like: Arrays) -> Arrays:
        """The same examples, scaled so that all images of `like` have mean 0 and deviation 1."""
        centre, spread = float(like.x.mean()), float(like.x.std())
        return self.normalised(centre / like._white, spread / like._white)

    def relabelled(self, names: Sequence[int]) -> Arrays:
        """The same with label names[y] instead of y; examples with -1 are left out."""
        y = np.asarray(names)[self.y]
        kept = y >= 0
        owners = None if self.owners is None else self.owners[kept]
        return replace(self, x=self.x[kept], y=y[kept], num_classes=max(names) + 1, owners=owners)

    @property
    def _white(self) -> float:
        return 255.0 if self.x.dtype == np.uint8 else 1.0
