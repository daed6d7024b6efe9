"""What is said where something does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, TypeAlias

from umbel.algorithms.base import Algorithm
from umbel.checks import UsageError

Check: TypeAlias = Callable[[Algorithm[Any]], None]
"""A check takes a method, and raises `AssertionError` if the method does not hold it."""


@contextmanager
def saying(sentence: str) -> Iterator[None]:
    """Begin the message of what does not hold inside by what it means, or when it was."""
    try:
        yield
    except (AssertionError, UsageError) as error:
        raise AssertionError(f"{sentence}: {error}") from None


def told(check: Check) -> Check:
    """The check, which says what it was about where a method fails in its midst."""

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
