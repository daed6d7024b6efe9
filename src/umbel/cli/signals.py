"""Signals that end this process end it in order."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

ENDING = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))
"""Signals that end a process; not every system has both."""


@contextmanager
def ending_in_order() -> Iterator[None]:
    """Inside, a signal that ends this process ends it by `SystemExit`, after what is to be closed.

    `multiprocessing` would otherwise leave files. Signals that are ignored, as by nohup, or handled
    by somebody else, stay so.
    """
    main = threading.current_thread() is threading.main_thread()
    heeded = [number for number in ENDING if main and signal.getsignal(number) == signal.SIG_DFL]

    def end(number: int, _: object) -> None:
        for each in heeded:  # a second one would interrupt the ending of jobs
            signal.signal(each, signal.SIG_IGN)
        raise SystemExit(128 + number)

    for number in heeded:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in heeded:
            signal.signal(number, signal.SIG_DFL)
