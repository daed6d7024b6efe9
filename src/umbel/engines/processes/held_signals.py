"""Signals that arrive while this process forks or ends workers: handlers are called afterwards."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType
from typing import Any


@contextmanager
def held_signals() -> Iterator[None]:
    """Let Python's handlers of signals wait until the end of the `with` block.

    A handler may raise an error, as on Ctrl-C. Python ignores errors in what it calls at a fork,
    such as the functions that lock and unlock `logging`: the signal would be lost, and the lock
    held for ever. Raised while workers are ended, it would leave the others running. A process that
    is forked inside hears no such signal until it sets handlers of its own and unblocks them.
    """
    found = {number: signal.getsignal(number) for number in signal.valid_signals()}
    handlers: dict[int, Callable[[int, FrameType | None], Any]] = {
        number: handler for number, handler in found.items() if callable(handler)
    }
    noted: list[tuple[int, FrameType | None]] = []
    waiting = True  # before any is replaced: an error here would leave the others replaced
    # Python calls handlers in the main thread, which alone may replace them.
    main = threading.current_thread() is threading.main_thread()

    def note(number: int, frame: FrameType | None) -> None:
        if waiting:
            noted.append((number, frame))
        else:  # it came just before all are put back
            handlers[number](number, frame)

    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    try:
        for number in handlers if main else ():
            signal.signal(number, note)
        # A forked process must not hear them before it knows that it is one. For this process that
        # is not enough: another thread may take them, and the main thread calls the handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, handlers)
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        waiting = False
        try:
            for number, handler in handlers.items() if main else ():
                signal.signal(number, handler)
        finally:
            with ExitStack() as calls:  # calls all of them, even if one raises an error
                for number, frame in reversed(noted):
                    calls.callback(handlers[number], number, frame)
