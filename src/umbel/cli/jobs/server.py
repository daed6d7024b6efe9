"""The process that jobs are forked from: it has loaded what every run needs, and opened nothing."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing import resource_tracker
from typing import TYPE_CHECKING, Any

import click

from umbel.cores import roaming

if TYPE_CHECKING:  # not every system has both
    from multiprocessing.context import (
        ForkServerContext,
        ForkServerProcess,
        SpawnContext,
        SpawnProcess,
    )

UNUSED = "umbel.cli.jobs.server.unused"
"""Name among a command's own values: whether it was started for jobs that there are not yet."""

SPARE = 16
"""No job is started with fewer free descriptors; starting one takes fewer, for a moment."""

# A job must not inherit what its parent has opened, such as locks of runs or a GPU. If processes
# can be forked from a server process that has only imported modules, PyTorch is loaded once.
CONTEXT: ForkServerContext | SpawnContext = (
    multiprocessing.get_context("forkserver")
    if sys.platform == "linux"
    else multiprocessing.get_context("spawn")
)
LOADED = ("umbel.cli.compare", "sklearn.cluster", "sklearn.datasets")
"""Modules that every run needs and that load slowly."""


def prepare(jobs: int) -> None:
    """Begin to start it for several jobs of a command: it loads PyTorch while this process does.

    What hinders it is told by `start`. If the command ends before any job, so does it: it would go
    on loading, and keep open what this process has written to.
    """
    if jobs == 1 or not _forks() or _server()._forkserver_pid:
        return
    with suppress(OSError, click.ClickException), _deaf_to_ctrl_c(), roaming():
        check_descriptors()
        _load()
    command = click.get_current_context()
    command.meta[UNUSED] = True
    command.call_on_close(lambda: _kill() if command.meta[UNUSED] else None)


def start(process: ForkServerProcess | SpawnProcess) -> None:
    """Start it. Raises `EOFError` or `ConnectionError` where what it is copied from is gone."""
    copied = _forks()
    if (command := click.get_current_context(silent=True)) is not None:
        command.meta[UNUSED] = False
    with _deaf_to_ctrl_c(), roaming():
        if copied:
            _load()
        else:
            process.start()
    if copied:
        process.start()  # waits until everything is loaded


def check_descriptors() -> None:
    """Raise `OSError` if too few descriptors are free to start a job.

    If they ended while it is started, so would the process that jobs are copied from.
    """
    with ExitStack() as opened:
        for _ in range(SPARE):
            opened.callback(os.close, os.open(os.devnull, os.O_RDONLY))


def _forks() -> bool:
    return CONTEXT.get_start_method() == "forkserver"


def _server() -> Any:
    """Python's own object for that process, of which only its start is public."""
    from multiprocessing import forkserver  # not on every system

    return forkserver._forkserver


def _kill() -> None:
    server = _server()
    if server._forkserver_pid:
        os.kill(server._forkserver_pid, signal.SIGKILL)
        server._stop()


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
