"""The time and memory of a process and of the workers that it starts."""

from __future__ import annotations

import os
from pathlib import Path
from time import perf_counter, process_time, time
from typing import Any


class Watch:
    """Writes down the rounds of a side."""

    def __init__(self) -> None:
        self.laps: list[dict[str, float | None]] = []

    def start(self) -> None:
        """Everything is ready for the next round."""
        self.workers, self.cpu, self.wall = workers_seconds(), process_time(), perf_counter()

    def lap(self, accuracy: float | None = None) -> None:
        """A round is over, with its evaluation if there is an accuracy."""
        wall, own = perf_counter() - self.wall, process_time() - self.cpu
        cpu = own + workers_seconds() - self.workers
        self.laps.append(
            {"cpu": cpu, "wall": wall, "age": time() - _started(), "accuracy": accuracy}
        )
        self.start()

    def told(self) -> dict[str, Any]:
        """The rounds, and the largest memory with what is the workers' own, in MiB."""
        own = sum(_kibibytes(Path("/proc/self/status"), "VmHWM"))
        private = (_kibibytes(one / "smaps_rollup", "Private_") for one, _ in workers())
        return {"laps": self.laps, "memory_mb": (own + sum(map(sum, private))) / 1024}


def workers() -> list[tuple[Path, list[str]]]:
    """The folders in /proc of the processes that this one has started, and their statistics."""
    every = [(file.parent, _fields(file)) for file in Path("/proc").glob("[0-9]*/stat")]
    return [(folder, fields) for folder, fields in every if fields[1] == str(os.getpid())]


def workers_seconds() -> float:
    """The CPU time of the workers, to a hundredth of a second."""
    ticks = sum(int(fields[11]) + int(fields[12]) for _, fields in workers())
    return ticks / os.sysconf("SC_CLK_TCK")


def _fields(file: Path) -> list[str]:
    try:
        return file.read_text().rpartition(")")[2].split()
    except OSError:  # the process has ended
        return ["", ""]


def _started() -> float:
    uptime = float(Path("/proc/uptime").read_text().split()[0])
    ticks = int(_fields(Path("/proc/self/stat"))[19])
    return time() - uptime + ticks / os.sysconf("SC_CLK_TCK")


def _kibibytes(file: Path, start: str) -> list[int]:
    return [
        int(line.split()[1]) for line in file.read_text().splitlines() if line.startswith(start)
    ]
