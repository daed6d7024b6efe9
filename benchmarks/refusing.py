"""Mistakes in a command of the benchmarks end it with a sentence, as they do those of `umbel`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from umbel.checks import UsageError


@contextmanager
def plainly() -> Iterator[None]:
    """Inside, a `UsageError` ends the process with its message alone."""
    try:
        yield
    except UsageError as error:
        raise SystemExit(str(error)) from None
