"""The cores that this process may use, and those that it starts.

OpenMP, by which PyTorch computes, binds the first thread to one core where OMP_PROC_BIND or the
like is set, as it often is on large machines. A process begins with the cores of the thread that
starts it: without more ado all workers would share that one.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

BINDING = ("OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY")
"""Variables by which OpenMP is told to bind threads."""


def cores() -> int:
    """How many cores this process may use, and its container if it is in one that has fewer.

    LOKY_MAX_CPU_COUNT bounds the number, as it does in scikit-learn.
    """
    import joblib  # which takes a moment to load

    with _roaming_thread():
        return int(joblib.cpu_count())


def roam() -> None:
    """Let this thread use all of them."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.sched_setaffinity(0, _allowed())


@contextmanager
def roaming() -> Iterator[None]:
    """A process that is started inside may use all of them, and binds none of its threads.

    Several of them would bind theirs to the same cores.
    """
    withheld = {name: os.environ.pop(name) for name in BINDING if name in os.environ}
    try:
        with _roaming_thread():
            yield
    finally:
        os.environ.update(withheld)


@contextmanager
def _roaming_thread() -> Iterator[None]:
    """This thread may use all of them inside."""
    if sys.platform != "linux":
        yield
        return
    bound = os.sched_getaffinity(0)
    roam()
    try:
        yield
    finally:
        os.sched_setaffinity(0, bound)


def _allowed() -> set[int]:
    """Those of this thread, and where OpenMP binds threads, all that it has for that."""
    mine = os.sched_getaffinity(0)
    openmp = ctypes.CDLL(None)
    if not hasattr(openmp, "omp_get_place_proc_ids"):  # not loaded, or an old one
        return mine
    for place in range(openmp.omp_get_num_places()):
        ids = (ctypes.c_int * openmp.omp_get_place_num_procs(place))()
        openmp.omp_get_place_proc_ids(place, ids)
        mine |= set(ids)
    return mine
