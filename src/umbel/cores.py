"""The cores that this process may use, and those that it starts.

OpenMP, by which PyTorch computes, binds the first thread to one core where OMP_PROC_BIND or the
like is set, as it often is on large machines. A process begins with the cores of the thread that
starts it: unless that is lifted, all workers share that one.
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
"""Variables by which OpenMP is told to bind threads."""

LIMIT = "LOKY_MAX_CPU_COUNT"


def cores() -> int:
    """How many cores this process may use, and its container if it is in one that has fewer.

    LOKY_MAX_CPU_COUNT bounds the number, as it does in scikit-learn. Raises `UsageError` where that
    is no number.
    """
    from joblib.externals.loky import cpu_count  # which takes a moment to load

    try:
        with _roaming_thread():
            return int(cpu_count())
    except ValueError:
        raise UsageError(f"{LIMIT}: {os.environ[LIMIT]!r} is not a whole number") from None


def allowed_cores() -> frozenset[int]:
    """Numbers of the cores that this process may use; empty where the system does not say.

    They are those of this thread, or all that OpenMP has for threads if it binds them.
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
    """Let this thread use these cores: all that it may, by default."""
    over = allowed_cores() if over is None else over
    if over:
        with suppress(OSError):
            os.sched_setaffinity(0, over)


def forget(process: int) -> None:
    """Remove what LLVM's and Intel's OpenMP note of a process in shared memory.

    They do so themselves only where it ends by `exit`.
    """
    if sys.platform == "linux":
        with suppress(OSError):
            Path(f"/dev/shm/__KMP_REGISTERED_LIB_{process}_{os.getuid()}").unlink()


@contextmanager
def roaming() -> Iterator[None]:
    """A process that is started inside may use all of them, and binds none of its threads.

    Several of them would bind theirs to the same cores. Threads that start processes meanwhile do
    so without these variables, too.
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
    """This thread may use all of them inside."""
    if sys.platform != "linux":
        yield
        return
    bound = frozenset(os.sched_getaffinity(0))
    roam()
    try:
        yield
    finally:
        roam(bound)
