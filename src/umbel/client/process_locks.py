"""What belongs to the whole process, so that threads change it in turn."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Generic, TypeVar

from torch.nn.attention import SDPBackend, sdpa_kernel

T = TypeVar("T")


class HeldSetting(Generic[T]):
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


class Turn:
    """A lock that a thread may take again, and that a forked process finds released."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        """Release the lock in a forked process, which has no other threads."""
        self.lock = threading.RLock()


TURN = Turn()
"""Held while generators, filters of warnings or PyTorch's settings have other values."""

SWAPPING = Turn()
"""Held while a module has other tensors than its own, and while such a module is copied.

It is not `TURN`: on a GPU the backward pass has threads of its own, which may need this lock while
the thread that waits for them holds `TURN`.
"""


@contextmanager
def plain_attention() -> Iterator[None]:
    """Compute attention from its products inside the block; other threads wait for their turn.

    PyTorch's faster forms have no derivatives of second order, and none for many models at once.
    """
    with TURN.lock, sdpa_kernel(SDPBackend.MATH):
        yield
