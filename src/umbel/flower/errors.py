"""Refusals: the only error that reading a message can raise, whatever its content."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from reprlib import Repr
from typing import ParamSpec, TypeVar

from umbel.checks import UsageError, printable

P = ParamSpec("P")
T = TypeVar("T")

LONGEST_REASON = 500

IN_THE_LOG = "; this node's log says more"


class RefusedError(ValueError):
    """Raised for a message that can't be used; the text says why."""


class ForgottenError(RefusedError):
    """The node lost its clients' memory; the server must send it again."""


def refusing(read: Callable[P, T]) -> Callable[P, T]:
    """Turn any error of reading a message into a refusal."""

    @wraps(read)
    def guarded(*given: P.args, **named: P.kwargs) -> T:
        try:
            return read(*given, **named)
        except RefusedError:
            raise
        except Exception as error:
            raise RefusedError(reason(error)) from error

    return guarded


def reason(error: Exception) -> str:
    """Return the reason of a refusal, in one line that can be sent, logged and kept."""
    expected = isinstance(error, RefusedError)
    return plain_beginning(str(error) if expected else f"{type(error).__name__}: {error}")


def told(error: Exception, private: bool) -> str:
    """Return the reason for the other side; text that may reveal examples stays in this log."""
    spoken = RefusedError if private else RefusedError | UsageError | MemoryError
    return reason(error) if isinstance(error, spoken) else f"{type(error).__name__}{IN_THE_LOG}"


def plain_beginning(text: str) -> str:
    """Return the beginning of a text from elsewhere, without characters that a terminal acts on."""
    return printable(text[:LONGEST_REASON])[:LONGEST_REASON]


def abbreviated(value: object) -> str:
    """Return the beginning of a value's `repr`: values from elsewhere may be of any size."""
    return _SHORT.repr(value)


_SHORT = Repr()
_SHORT.maxstring = _SHORT.maxother = 60
