"""The time and memory of a process; its workers, forked for a round, count with their CPU time."""

from __future__ import annotations

import os
from pathlib import Path
from resource import RUSAGE_CHILDREN, getrusage
from time import perf_counter, process_time
from typing import Any


class Watch:
    """Writes down the rounds of a side."""

    def __init__(self) -> None:
        self.laps: list[dict[str, float | None]] = []

    def start(self) -> None:
        """Everything is ready for the next round."""
        self.cpu, self.wall = cpu_seconds(), perf_counter()

    def lap(self, accuracy: float | None = None) -> None:
        """A round is over, with its evaluation if there is an accuracy."""
        cpu, wall = cpu_seconds() - self.cpu, perf_counter() - self.wall
        self.laps.append({"cpu": cpu, "wall": wall, "age": _age(), "accuracy": accuracy})
        self.start()

    def told(self) -> dict[str, Any]:
        """The rounds, and the peak memory of this process in MiB."""
        lines = Path("/proc/self/status").read_text().splitlines()
        (peak,) = (line.split()[1] for line in lines if line.startswith("VmHWM"))
        return {"laps": self.laps, "memory_mb": int(peak) / 1024}


def cpu_seconds() -> float:
    """The CPU time of this process and of the workers that have ended."""
    workers = getrusage(RUSAGE_CHILDREN)
    return process_time() + workers.ru_utime + workers.ru_stime


def _age() -> float:
    """Seconds since the process started."""
    ticks = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    return uptime - ticks / os.sysconf("SC_CLK_TCK")
