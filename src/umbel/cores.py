"""The cores that this process, and processes that it starts, may use.

PyTorch computes with OpenMP, which binds the first thread to one core if OMP_PROC_BIND or a similar
variable is set, as it often is on large machines. A new process inherits the cores of the thread
that starts it: unless the binding is lifted, all workers share that one core.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from umbel.checks import UsageError

BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""Environment variables that tell OpenMP to bind threads to cores."""

LIMIT = "LOKY_MAX_CPU_COUNT"


def cores() -> int:
    """Return the number of cores that this process may use, by its container, too.

    LOKY_MAX_CPU_COUNT bounds the number, as it does in scikit-learn. Raises `UsageError` if that
    variable is not a whole number.
    """
    from joblib.externals.loky import cpu_count  # which takes a moment to load

    try:
        with _roaming_thread():
            return int(cpu_count())
    except ValueError:
        raise UsageError(f"{LIMIT}: {os.environ[LIMIT]!r} is not a whole number") from None


def allowed_cores() -> frozenset[int]:
    """The numbers of the cores that this process may use; empty if the system does not report them.

    They are the cores of this thread and, if OpenMP binds threads, all cores that it binds them to.
    """
    if sys.platform != "linux":
        return frozenset()
    mine = frozenset(os.sched_getaffinity(0))
    openmp = ctypes.CDLL(None)
    known = hasattr(openmp, "omp_get_place_proc_ids")  # not before it is loaded
    if not known or not openmp.omp_get_proc_bind():
        return mine
    every = set(mine)
    for place in range(openmp.omp_get_num_places()):
        ids = (ctypes.c_int * openmp.omp_get_place_num_procs(place))()
        openmp.omp_get_place_proc_ids(place, ids)
        every |= set(ids)
    return frozenset(every)


def roam(over: frozenset[int] | None = None) -> None:
    """Let this thread use these cores; by default all that the process may use."""
    over = allowed_cores() if over is None else over
    if over:
        with suppress(OSError):
            os.sched_setaffinity(0, over)


def forget(process: int) -> None:
    """Remove the file that LLVM's and Intel's OpenMP keep for a process in shared memory.

    OpenMP removes it only if the process ends by `exit`.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            Path(f"/dev/shm/__KMP_REGISTERED_LIB_{process}_{os.getuid()}").unlink()


@contextmanager
def roaming() -> Iterator[None]:
    """Let processes that are started inside use all allowed cores, without binding their threads.

    Otherwise several processes would bind their threads to the same cores. The variables are
    removed from the environment, so processes that other threads start meanwhile lack them, too.
    """
    withheld = {name: os.environ.pop(name) for name in BINDING if name in os.environ}
    try:
        with _roaming_thread():
            yield
    finally:
        for name, value in withheld.items():
            os.environ.setdefault(name, value)


@contextmanager
def _roaming_thread() -> Iterator[None]:
    """Let this thread use all allowed cores inside."""
    if sys.platform != "linux":
        yield
        return
    bound = frozenset(os.sched_getaffinity(0))
    roam()
    try:
        yield
    finally:
        roam(bound)
