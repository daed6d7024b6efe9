"""Calls that are repeated while the SuperLink fails for a moment."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

import httpx

from umbel.flower.errors import reason

T = TypeVar("T")

log = logging.getLogger(__name__)

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 20.0
"""Seconds between the first two calls, and between later ones at most."""

PATIENCE = 120.0
"""Seconds after a first failure in which a call is repeated, at most."""


def patiently(call: Callable[[], T], time_limit: float = PATIENCE) -> T:
    """Return what a call returns that may be made several times.

    If the SuperLink fails for a moment, the call is repeated after 1, 2, 4, ... seconds. Raises the
    last error once `time_limit` seconds, or `PATIENCE`, have passed since the first, and any other
    error at once.
    """
    until, wait = None, FIRST_PAUSE
    while True:
        try:
            return call()
        except Exception as error:
            now = time.monotonic()
            if not may_pass(error) or (until is not None and now >= until):
                raise
            if until is None:
                most = min(time_limit, PATIENCE)
                until = now + most
                log.warning(
                    "the SuperLink fails, and is asked again for %g s: %s", most, reason(error)
                )
        time.sleep(min(wait, until - now))
        wait = min(2 * wait, LONGEST_PAUSE)


def may_pass(error: Exception) -> bool:
    """Whether the SuperLink may answer the same question a moment later."""
    if isinstance(error, httpx.HTTPStatusError):
        return error.response.is_server_error
    # Flower's name for a part of a message that could not be stored is not public.
    lost = type(error).__name__ == "ObjectPushError"
    return lost or isinstance(error, OSError | httpx.TransportError)
