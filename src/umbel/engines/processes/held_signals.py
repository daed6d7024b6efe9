"""Signals that arrive while this process forks or ends workers: handlers are called afterwards."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import FrameType
from typing import Any


class HeldSignals:
    """Inside this block, handlers of signals that are written in Python wait until its end.

    A handler may raise an error, as on Ctrl-C. Python ignores errors in what it calls at a fork,
    such as the functions that lock and unlock `logging`: the signal would be lost, and the lock
    held for ever. Raised while workers are ended, it would leave the others running. A process that
    is forked inside leaves the block by `put_back` and `let_in`.
    """

    def __init__(self) -> None:
        found = {number: signal.getsignal(number) for number in signal.valid_signals()}
        self.handlers: dict[int, Callable[[int, FrameType | None], Any]] = {
            number: handler for number, handler in found.items() if callable(handler)
        }
        self.noted: list[tuple[int, FrameType | None]] = []
        self.waiting = False  # whether signals are only noted
        self.blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())  # before this block

    def __enter__(self) -> HeldSignals:
        self.waiting = True  # before any is replaced: an error here would leave the others replaced
        if _handles_signals():
            for number in self.handlers:
                signal.signal(number, self._note)
        # A forked process must not hear them before it knows that it is one. For this process that
        # is not enough: another thread may take them, and the main thread calls the handlers.
        signal.pthread_sigmask(signal.SIG_BLOCK, self.handlers)
        return self

    def __exit__(self, *_: object) -> None:
        self.let_in()
        try:
            self.put_back()
        finally:
            with ExitStack() as calls:  # calls all of them, even if one raises an error
                for number, frame in reversed(self.noted):
                    calls.callback(self.handlers[number], number, frame)

    def put_back(self) -> None:
        """Give signals the handlers again that they had before."""
        if _handles_signals():
            for number, handler in self.handlers.items():
                signal.signal(number, handler)
        self.waiting = False

    def let_in(self) -> None:
        """Let the thread that forked, or the new process, hear signals again."""
        signal.pthread_sigmask(signal.SIG_SETMASK, self.blocked)

    def _note(self, number: int, frame: FrameType | None) -> None:
        if self.waiting:
            self.noted.append((number, frame))
        else:  # it came just before all are replaced, or before they are put back
            self.handlers[number](number, frame)


def _handles_signals() -> bool:
    """Whether this is the thread in which Python calls handlers, and which may replace them."""
    return threading.current_thread() is threading.main_thread()
