"""The last line on the stream of a run: why it ended, if it did not end by itself."""

from __future__ import annotations

import logging
from collections.abc import Callable

import httpx

from umbel.checks import QuorumError, UsageError, first_line

log = logging.getLogger(__name__)

ENDED = (
    "ended by `flwr stop`, or because the SuperLink had no sign of life from this run for a "
    "minute, as on a busy machine, so that its token has expired; the same `flwr run` goes on from "
    "the checkpoint"
)
"""What is known if Flower ends the process, or takes no more requests of its token."""

KNOWN_ERRORS = (UsageError, QuorumError, OSError, MemoryError)
"""Errors whose message is for users, who need not see where they were raised."""


def said_last(work: Callable[[], object]) -> None:
    """Do the work, and log the reason for an end once more after all that Flower writes about it.

    Flower logs where an error was raised, and an exit code, below umbel's sentence, and nothing if
    it ends the process itself.
    """
    why: list[str] = [ENDED]
    _before_exit(lambda: log.error("umbel: %s", why[0]) if why else None)
    try:
        work()
    except Exception as error:
        why[:] = [_reason(error)]
        if not isinstance(error, KNOWN_ERRORS):
            raise
        raise error.with_traceback(None) from None
    why.clear()


def _reason(error: Exception) -> str:
    expired = isinstance(error, httpx.HTTPStatusError) and error.response.status_code in (401, 403)
    if expired:
        return ENDED
    kind = "" if isinstance(error, KNOWN_ERRORS) else f"{type(error).__name__}: "
    return kind + first_line(error)


def _before_exit(say: Callable[[], None]) -> None:
    """Have Flower call this before it ends the process, if this version has such a list."""
    try:
        from flwr.supercore.exit import add_exit_handler  # not a public name
    except ImportError:
        return
    add_exit_handler(say)
