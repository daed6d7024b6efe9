"""Five seeds of a comparison in turn and side by side: `python -m benchmarks.lockstep`."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from time import process_time

from benchmarks.measure import Timing, pin
from umbel.data.sources import Sources
from umbel.experiment.library import find_experiment
from umbel.folder.execution import execute, execute_together
from umbel.folder.run_folder import RunFolder
from umbel.result.run import read

NAMES = ("ifca-linear", "flacc-digits", "ifca-digits", "lcfl-digits")


def seconds(name: str, rounds: int, seeds: int, side_by_side: bool) -> float:
    """CPU seconds of all runs of this experiment."""
    experiment = replace(read(find_experiment(name)), rounds=rounds)
    with tempfile.TemporaryDirectory() as place:
        folders = [
            RunFolder.create(Path(place) / str(seed), experiment.with_seed(seed))
            for seed in range(seeds)
        ]
        began = process_time()
        _drive(folders, side_by_side)
        return process_time() - began


def _drive(folders: Sequence[RunFolder], side_by_side: bool) -> None:
    sources = Sources.default()
    if side_by_side:
        assert execute_together(folders, sources, lambda _: None)
        return
    for folder in folders:
        for _ in execute(folder, sources):
            pass


def main() -> None:
    """Both ways in turns, checkpoints and evaluation included."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.lockstep", description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    pin()
    for name in NAMES:
        taken: dict[bool, list[float]] = {False: [], True: []}
        seconds(name, 2, given.seeds, side_by_side=False)
        for _ in range(given.repeats):
            for way, found in taken.items():
                found.append(seconds(name, given.rounds, given.seeds, way))
        alone, together = Timing.of(taken[False]), Timing.of(taken[True])
        sys.stdout.write(
            f"{name}: {given.seeds} seeds x {given.rounds} rounds: in turn {alone.median:.2f} s "
            f"({alone.low:.2f} to {alone.high:.2f}), side by side {together.median:.2f} s "
            f"({together.low:.2f} to {together.high:.2f}), "
            f"ratio {alone.median / together.median:.2f}\n"
        )


if __name__ == "__main__":
    main()
