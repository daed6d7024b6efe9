"""The process that jobs are forked from: it has loaded what every run needs, and opened nothing."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING

import click

from umbel.cores import roaming

if TYPE_CHECKING:  # not every system has both
    from multiprocessing.context import (
        ForkServerContext,
        ForkServerProcess,
        SpawnContext,
        SpawnProcess,
    )

# A job must not inherit what its parent has opened, such as locks of runs or a GPU. If processes
# can be forked from a server process that has only imported modules, PyTorch is loaded once.
CONTEXT: ForkServerContext | SpawnContext = (
    multiprocessing.get_context("forkserver")
    if sys.platform == "linux"
    else multiprocessing.get_context("spawn")
)
LOADED = ("umbel.cli.compare", "sklearn.cluster")
"""Modules that load slowly and that most runs need."""


def start(process: ForkServerProcess | SpawnProcess) -> None:
    """Start it. Raises `EOFError` or `ConnectionError` where what it is copied from is gone."""
    copied = CONTEXT.get_start_method() == "forkserver"
    with _deaf_to_ctrl_c(), roaming():
        if copied:
            _load()
        else:
            process.start()
    if copied:
        process.start()  # waits until everything is loaded


def _load() -> None:
    """Start the process that jobs are forked from, unless it runs already."""
    from multiprocessing import forkserver  # not on every system

    CONTEXT.set_forkserver_preload([*LOADED])
    try:
        forkserver.ensure_running()
    except OSError as error:
        if "AF_UNIX" not in str(error):
            raise
        place = tempfile.gettempdir()
        how = "set TMPDIR to a shorter path, such as /tmp, or leave out --jobs"
        raise click.ClickException(f"{place}: too long a path for --jobs; {how}") from None


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Processes that are started inside never hear Ctrl-C: their parent tells them when to end.

    This process hears it at the end, or at once where another of its threads takes the signal.
    """
    main = threading.current_thread() is threading.main_thread()
    if not main or not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Started inside, it would unblock the signal before what is to inherit the mask is started.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
