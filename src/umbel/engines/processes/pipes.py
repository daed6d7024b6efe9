"""Pipes between processes."""

from __future__ import annotations

import os
import struct
import sys

NUMBER = struct.Struct("i")
"""A number in a pipe; what is this small is read and written whole or not at all."""

MOST = 4096
"""Numbers that the usual pipe has room for."""


def two_pipes() -> tuple[int, int, int, int]:
    """Both ends of one pipe, and of another. Raises `OSError` where there can't be so many."""
    first = os.pipe()
    try:
        return *first, *os.pipe()
    except OSError:
        for end in first:
            os.close(end)
        raise


def room(pipe: int) -> int:
    """How many numbers a pipe has room for: to a user with many the system gives small ones."""
    if not sys.platform.startswith("linux"):
        return MOST
    from fcntl import F_GETPIPE_SZ, fcntl

    return min(MOST, fcntl(pipe, F_GETPIPE_SZ) // NUMBER.size)
