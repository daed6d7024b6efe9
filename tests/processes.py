"""Processes that tests start and kill: copies of one process that has imported umbel already."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from multiprocessing.context import ForkServerProcess
from pathlib import Path

from umbel import cli

CONTEXT = multiprocessing.get_context("forkserver")
CONTEXT.set_forkserver_preload(
    [__name__, "umbel.folder.execution", "umbel.report", "sklearn.datasets", "sklearn.metrics"]
)

PATIENCE = 600  # seconds, after which something is broken


def start(
    function: Callable[..., object], *arguments: object, daemon: bool = True
) -> ForkServerProcess:
    """Call a function of a test module in a process of its own; a daemon ends with the tests."""
    process = CONTEXT.Process(target=_heeding_signals, args=(function, *arguments), daemon=daemon)
    process.start()
    return process


def start_umbel(folder: Path, *words: str) -> ForkServerProcess:
    """Start `umbel WORDS` in a folder; what it prints is in the files `out` and `err` there."""
    return start(_umbel, folder, words, daemon="--jobs" not in words)  # daemons can't have any


def ended(process: ForkServerProcess) -> int:
    """The exit status of a process, once it has ended."""
    process.join(PATIENCE)
    assert process.exitcode is not None, "the process does not end"
    return process.exitcode


def wait_for_lines(process: ForkServerProcess, file: Path, count: int) -> None:
    """Wait until a process has written as many whole lines to a file."""
    deadline = time.monotonic() + PATIENCE
    while not file.is_file() or file.read_bytes().count(b"\n") < count:
        process.join(0.001)
        assert process.is_alive(), "the process ended by itself"
        assert time.monotonic() < deadline, f"{file} does not grow"


def wait_until(holds: Callable[[], object], otherwise: str) -> None:
    """Wait for what other processes do; where they don't, the test fails with these words."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.001)


def children(parent: int) -> set[int]:
    """Processes whose parent is this one."""
    of_threads = Path(f"/proc/{parent}/task").glob("*/children")
    return {int(process) for file in of_threads for process in file.read_text().split()}


def running(process: int) -> bool:
    """Whether a process is there, and no zombie that waits for whoever adopted it."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def wait_until_gone(processes: Iterable[int]) -> None:
    """Wait for workers whose parent was killed."""
    left = list(processes)
    wait_until(lambda: not any(map(running, left)), "a worker outlived its parent")


def _umbel(folder: Path, words: tuple[str, ...]) -> None:
    os.chdir(folder)
    for stream, name in enumerate(("out", "err"), 1):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    sys.argv = ["umbel", *words]
    cli.main()


def heeding_signals() -> None:
    """Undo what children inherit: a shell in the background ignores Ctrl-C, and nohup SIGHUP.

    `umbel compare --jobs` starts the process that forks others with Ctrl-C blocked.
    """
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def _heeding_signals(function: Callable[..., object], *arguments: object) -> None:
    heeding_signals()
    function(*arguments)
