"""Keep the memory that rounds free in the process: to request it from the system again is slow.

Every step and round frees large tensors and allocates them again. The allocator of the GNU C
library returns freed blocks, at first those of 128 KiB or more, to the system, so that the same
pages are cleared again in every round. Memory that was freed before the first round, such as copies
of examples made while a federation was built, is returned once: no round needs it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable
from functools import cache

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3
"""Names of settings, as <malloc.h> numbers them."""

KEPT = 2**30
"""Bytes that may be free without going back to the system."""

LARGEST = 32 * 2**20
"""Blocks from this size on, in bytes, are requested from the system singly; the largest allowed."""

ON_THEIR_OWN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Environment variables with which users set the same."""


@cache
def keep_freed_memory() -> bool:
    """Have this process keep what it frees, once; return whether that could be set.

    It can't be set with another allocator, and is left alone if the user has set it.
    """
    set_to = None if any(name in os.environ for name in ON_THEIR_OWN) else _of_malloc("mallopt")
    if set_to is None:
        return False
    return bool(set_to(MMAP_THRESHOLD, LARGEST) and set_to(TRIM_THRESHOLD, KEPT))


def give_back_freed_memory() -> None:
    """Return free memory to the system now, if the allocator supports it."""
    trim = _of_malloc("malloc_trim")
    if trim is not None:
        trim(0)


def _of_malloc(name: str) -> Callable[..., int] | None:
    """A function of the GNU C library's allocator; None on other systems."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), name, None)
