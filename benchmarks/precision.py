"""Full precision beside bfloat16: `python -m benchmarks.precision`.

Whole workloads in both, experiments in both, and with `--products` what single products gain.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch

from benchmarks.__main__ import machine
from benchmarks.measure import alternate, difference, matmul_peak, pin
from benchmarks.products import measured
from benchmarks.report import precision_markdown
from benchmarks.workloads import BF16, FULL, lcfl_losses, lcfl_training, one_step
from umbel.data.sources import Sources
from umbel.engines.precision import bf16_units
from umbel.runs.config import read
from umbel.runs.execution import execute
from umbel.runs.folder import RunFolder
from umbel.runs.library import find_experiment
from umbel.runs.records import Record

Row = dict[str, Any]

CONTESTS = {
    "W1": partial(one_step, 32, "cpu"),
    "W2 training": partial(lcfl_training, 200, "cpu"),
    "W2 cross-loss": partial(lcfl_losses, 60, "cpu"),
}


@dataclass(frozen=True)
class Case:
    """An experiment, and what is changed in it."""

    what: str
    name: str
    changes: tuple[str, ...] = ()


CASES = [
    Case("FLACC, rotated MNIST", "flacc-mnist-reduced", ("rounds=60",)),
    Case("IFCA, rotated MNIST", "ifca-mnist-reduced", ("rounds=30",)),
    Case(
        "CFL-GP, rotated MNIST",
        "fedavg-mnist-reduced",
        ("rounds=30", "algorithm.name=cfl-gp", "algorithm.num_clusters=4", "algorithm.send=update"),
    ),
    Case("LCFL, rotated MNIST, W2's network and training", "lcfl-120"),
]
"""All with the MLP 784-200-10."""


def speeds(repeats: int) -> list[Row]:
    """CPU seconds of whole workloads, in turns, and their shares of each precision's peak."""
    peaks = {FULL: matmul_peak("cpu"), BF16: matmul_peak("cpu", dtype=torch.bfloat16)}
    rows: list[Row] = []
    for name, build in CONTESTS.items():
        contest = build()
        one, other = (contest.ours[label]() for label in peaks)  # they are warm after this
        apart = max(map(difference, other, one))
        timings = alternate([contest.ours[label] for label in peaks], repeats, "cpu")
        for (label, peak), timing in zip(peaks.items(), timings, strict=True):
            rows.append(
                {
                    "name": name,
                    "what": contest.what,
                    "precision": label,
                    "seconds": timing.median,
                    "low": timing.low,
                    "high": timing.high,
                    "peak_gflops": peak / 1e9,
                    "share_of_peak": contest.flops / timing.median / peak,
                    "times": timings[0].median / timing.median,
                    "apart": apart if label == BF16 else 0.0,
                }
            )
    return rows


def agreement(case: Case, seeds: Sequence[int]) -> list[Row]:
    """The end of every run, in both precisions."""
    return [
        {"what": case.what, "precision": label, "seed": seed, **end(case, label, seed)}
        for seed in seeds
        for label in (FULL, BF16)
    ]


def end(case: Case, label: str, seed: int) -> Row:
    """What the last record of a run says, and the CPU seconds that its clients took."""
    precision = "full" if label == FULL else "bf16"
    settings = [*case.changes, f"seed={seed}", f"engine.precision={precision}"]
    experiment = read(find_experiment(case.name), settings)
    with tempfile.TemporaryDirectory() as place:
        records = list(execute(RunFolder.create(Path(place) / "run", experiment), sources()))
    last: Record = records[-1]
    return {
        "rounds": len(records),
        "accuracy": last.accuracy,
        "num_clusters": last.num_clusters,
        "ari": last.ari,
        "client_seconds": statistics.median(record.client_seconds for record in records),
    }


def sources() -> Sources:
    """Where data sets are."""
    return Sources.default()


def main() -> None:
    """Measure, print the tables, and write the result file."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.precision", description=__doc__)
    parser.add_argument("--parts", nargs="*", default=["speeds", "experiments", "products"])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the results here")
    given = parser.parse_args()
    if not bf16_units():
        raise SystemExit("this processor has no products of bfloat16 numbers")
    pin()
    results: dict[str, Any] = {"machine": f"{machine()}, {', '.join(bf16_units())}"}
    if given.json and given.json.exists():
        results = json.loads(given.json.read_text()) | results
    if "speeds" in given.parts:
        results["speeds"] = speeds(given.repeats)
    if "products" in given.parts:
        results["products"] = measured()
    if "experiments" in given.parts:
        results["experiments"] = [
            row for case in CASES for row in agreement(case, range(given.seeds))
        ]
    if given.json:
        given.json.write_text(json.dumps(results, indent=1) + "\n")
    sys.stdout.write(precision_markdown(json.loads(json.dumps(results))))


if __name__ == "__main__":
    main()
