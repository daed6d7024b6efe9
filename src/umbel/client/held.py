"""Settings of the whole process, as PyTorch has them, which several threads may want at a time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

T = TypeVar("T")


class Held(Generic[T]):
    """A setting that is `wanted` as long as anybody is inside: the last to leave puts it back."""

    def __init__(self, read: Callable[[], T], put: Callable[[T], None], wanted: T) -> None:
        self.read, self.put, self.wanted = read, put, wanted
        self.lock, self.inside = threading.Lock(), 0
        self.before: T  # as long as anybody is inside

    @contextmanager
    def held(self) -> Iterator[None]:
        """Inside, the setting has the wanted value."""
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
