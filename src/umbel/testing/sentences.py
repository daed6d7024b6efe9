"""The messages of failed checks."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeAlias

from umbel.algorithms.base import Algorithm
from umbel.checks import UsageError

Check: TypeAlias = Callable[[Algorithm[Any]], None]
"""A check takes a method, and raises `AssertionError` if the method does not pass."""


@contextmanager
def saying(sentence: str) -> Iterator[None]:
    """Put this sentence before the message of an error that is raised inside."""
    try:
        yield
    except (AssertionError, UsageError) as error:
        raise AssertionError(f"{sentence}: {error}") from None


def told(check: Check) -> Check:
    """Wrap a check: other errors of the method get a message about what was checked."""

    @wraps(check)
    def explained(algorithm: Algorithm[Any]) -> None:
        try:
            check(algorithm)
        except (AssertionError, UsageError):
            raise
        except Exception as error:
            about = (check.__doc__ or "").partition("\n")[0]
            raise AssertionError(
                f"{type(algorithm).__name__} fails by {type(error).__name__}: {error}; "
                f"what is checked here: {about}"
            ) from error

    return explained
