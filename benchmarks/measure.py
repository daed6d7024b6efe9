"""Fair timing of two ways of a computation: on one core, in turns, after a check of results."""

from __future__ import annotations

import os
import resource
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter, process_time

import torch
from torch import Tensor

from umbel.client.kernels import onednn

ENOUGH, MANY = 5.0, 50
"""Seconds for which short runs are repeated, and the largest number of repeats."""


@dataclass(frozen=True)
class Timing:
    """Seconds of several runs."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, seconds: list[float]) -> Timing:
        """Their median and extremes."""
        return cls(statistics.median(seconds), min(seconds), max(seconds))


def pin() -> int:
    """Bind this process to one core, with one thread, and return the number of the core."""
    torch.set_num_threads(1)
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return core


def clock(device: str) -> Callable[[], float]:
    """CPU seconds of this process; on a GPU, wall-clock seconds when it is done."""
    if device == "cpu":
        return process_time

    def wall() -> float:
        torch.cuda.synchronize()
        return perf_counter()

    return wall


def alternate(contenders: list[Callable[[], object]], repeats: int, device: str) -> list[Timing]:
    """Run them in turns, `repeats` times each, or more often until `ENOUGH` seconds have passed.

    Run each once before, so that caches are filled.
    """
    now = clock(device)
    seconds: list[list[float]] = [[] for _ in contenders]
    while len(seconds[0]) < repeats or (sum(map(sum, seconds)) < ENOUGH and len(seconds[0]) < MANY):
        for contender, taken in zip(contenders, seconds, strict=True):
            start = now()
            contender()
            taken.append(now() - start)
    return [Timing.of(taken) for taken in seconds]


def matmul_peak(device: str, size: int = 2048, dtype: torch.dtype = torch.float32) -> float:
    """FLOP per second of a large matrix product of this type, by the faster library."""
    size = size if device == "cpu" else 4 * size
    a = torch.rand(size, size, device=device).to(dtype)
    fast = onednn.linear if onednn.is_faster_for(size, a) else torch.matmul
    return product_rate(fast, a)


def product_rate(multiply: Callable[[Tensor, Tensor], Tensor], matrix: Tensor) -> float:
    """FLOP per second of the product of a square matrix with itself: the best of ten."""
    now, best = clock(matrix.device.type), float("inf")
    for _ in range(10):
        start = now()
        multiply(matrix, matrix)
        best = min(best, now() - start)
    return 2 * len(matrix) ** 3 / best


def peak_memory_mb() -> float:
    """Peak memory of this process, in MiB, without that of its parent."""
    status = Path("/proc/self/status")
    if not status.exists():  # of the process and, before it took over, of the one that forked it
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    (line,) = [line for line in status.read_text().splitlines() if line.startswith("VmHWM")]
    return int(line.split()[1]) / 2**10


def difference(found: Tensor, expected: Tensor) -> float:
    """The distance of two results, in units of the length of the second: of (N, ...), the median.

    Where rounding turns a ReLU of one client to its other side, that client's gradient leaps.
    """
    apart, length = (
        (values if values.dim() > 1 else values[None]).double().flatten(1).norm(dim=1)
        for values in (found - expected, expected)
    )
    return float((apart / length).median())
