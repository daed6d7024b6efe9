"""A comparison by one process and by several jobs: `python -m benchmarks.jobs`."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from time import perf_counter

from benchmarks.measure import Timing

NAME = "rotated-mnist-reduced"


def seconds(jobs: int, rounds: int, seeds: int) -> float:
    """Wall-clock seconds of the whole command, with one thread per process."""
    with tempfile.TemporaryDirectory() as place:
        words = ["compare", NAME, "--seeds", str(seeds), "--set", f"rounds={rounds}"]
        words += ["--jobs", str(jobs), "--runs-dir", place]
        began = perf_counter()
        subprocess.run(
            [sys.executable, "-m", "umbel", *words],
            check=True,
            stdout=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        return perf_counter() - began


def main() -> None:
    """Both ways in turns, loading, building and writing included."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jobs", description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    seconds(1, 1, 1)  # decodes the data, unless done before
    taken: dict[int, list[float]] = {1: [], given.jobs: []}
    for _ in range(given.repeats):
        for jobs, found in taken.items():
            found.append(seconds(jobs, given.rounds, given.seeds))
    one, several = Timing.of(taken[1]), Timing.of(taken[given.jobs])
    sys.stdout.write(
        f"{NAME}: {given.seeds} seeds x {given.rounds} rounds: one job {one.median:.1f} s "
        f"({one.low:.1f} to {one.high:.1f}), {given.jobs} jobs {several.median:.1f} s "
        f"({several.low:.1f} to {several.high:.1f}), ratio {one.median / several.median:.2f}\n"
    )


if __name__ == "__main__":
    main()
