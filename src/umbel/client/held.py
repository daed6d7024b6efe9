"""Process-wide settings, such as PyTorch's, that several threads may change at the same time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Held(Generic[T]):
    """A setting with the value `wanted` while any thread is inside; the last one restores it."""

    def __init__(self, read: Callable[[], T], put: Callable[[T], None], wanted: T) -> None:
        self.read, self.put, self.wanted = read, put, wanted
        self.lock, self.inside = threading.Lock(), 0
        self.before: T  # exists while any thread is inside

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside the block, the setting has the wanted value."""
        with self.lock:
            if not self.inside:
                self.before = self.read()
                self.put(self.wanted)
            self.inside += 1
        try:
            yield
        finally:
            with self.lock:
                self.inside -= 1
                if not self.inside:
                    self.put(self.before)
