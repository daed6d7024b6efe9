"""Memory that rounds free stays with the process: taking it from the system again is slow.

Steps and rounds free large tensors and ask for as many again. The allocator of the GNU C library
gives what is freed back to the system, from 128 KiB on at first, so that the same pages are cleared
anew in every round. What was freed before the rounds, such as copies of the examples that a
federation was put together from, none of them needs again.
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
"""Bytes from which on memory is taken from the system by itself: the most that may be set."""

ON_THEIR_OWN = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
"""Variables by which users set the same."""


@cache
def keep_freed_memory() -> bool:
    """Have this process keep what it frees, once; return whether that could be set.

    It can't where the allocator is another, and is not where the user has set it otherwise.
    """
    set_to = None if any(name in os.environ for name in ON_THEIR_OWN) else _of_malloc("mallopt")
    if set_to is None:
        return False
    return bool(set_to(MMAP_THRESHOLD, LARGEST) and set_to(TRIM_THRESHOLD, KEPT))


def give_back_freed_memory() -> None:
    """Give back to the system what is free now, where the allocator can."""
    trim = _of_malloc("malloc_trim")
    if trim is not None:
        trim(0)


def _of_malloc(name: str) -> Callable[..., int] | None:
    """A function of the GNU C library's allocator, where that is the one."""
    if not sys.platform.startswith("linux"):
        return None
    return getattr(ctypes.CDLL(None), name, None)
