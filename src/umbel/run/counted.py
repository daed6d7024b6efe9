"""An iterator with a length hint."""

from __future__ import annotations

from collections.abc import Iterator
from operator import length_hint
from typing import TypeVar

T = TypeVar("T")


class Counted(Iterator[T]):
    """The same values; `operator.length_hint` returns the largest number of values left."""

    def __init__(self, values: Iterator[T], most: int) -> None:
        self._values = values
        self._left = iter(range(most))

    def __next__(self) -> T:
        next(self._left, None)
        return next(self._values)

    def __length_hint__(self) -> int:
        return length_hint(self._left)
