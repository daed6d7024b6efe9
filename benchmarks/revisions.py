"""Whole rounds of two revisions, in turns: `python -m benchmarks.revisions 86599cd HEAD`.

Each run is a process of its own, which imports the package of its revision and uses only names
that both have. A round includes evaluation, record and checkpoint. Nobody knows the groups.
"""

from __future__ import annotations

import argparse
import io
import json
import logging
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table
from torch import nn

import umbel
from benchmarks.measure import pin

ROOT = Path(__file__).parents[1]

GROUPS = 4


def perceptron() -> nn.Module:
    """The MLP 784-200-10."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, 10))


def lenet() -> nn.Module:
    """LeNet-5 on images of 28 x 28."""
    convolutions = [nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
    convolutions += [nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2)]
    dense = [nn.Linear(400, 120), nn.ReLU(), nn.Linear(120, 84), nn.ReLU(), nn.Linear(84, 10)]
    return nn.Sequential(*convolutions, nn.Flatten(), *dense)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], int, dict[str, Any]]] = {
    "W1": (perceptron, 32, {"steps": 1, "batch_size": 64}),
    "LeNet": (lenet, 8, {"epochs": 1, "batch_size": 32}),
}
"""The network, the number of clients with 500 examples, and the clients' training."""

METHODS: dict[str, dict[str, Any]] = {
    "LocalOnly": {},
    "FedAvg": {},
    "FedProx": {},
    "IFCA": {"num_clusters": GROUPS},
    "FLACC": {},
    "CFLGP": {"num_clusters": GROUPS, "patience": 1000},
    "LCFL": {"num_clusters": GROUPS},
    "Joint": {"num_clusters": GROUPS},
    "Sattler": {"from_round": 2},
    "FLHC": {"num_clusters": GROUPS, "cluster_round": 2},
    "PACFL": {"num_clusters": GROUPS},
}


def inside(network: str, method: str, rounds: int) -> list[float]:
    """CPU seconds of each round of the package that this process imports."""
    pin()
    build, clients, training = NETWORKS[network]
    rng = np.random.default_rng(0)

    def images(count: int) -> tuple[Any, Any]:
        return rng.random((count, 1, 28, 28), dtype=np.float32), rng.integers(0, 10, count)

    sets = [[images(count) for _ in range(clients)] for count in (500, 83)]
    federation = umbel.Federation.from_arrays(*sets, num_classes=10)
    local = umbel.LocalTraining(lr=0.05, **training)
    algorithm = getattr(umbel, method)(local=local, **METHODS[method])
    logging.getLogger("umbel").setLevel(logging.ERROR)  # of modules that no file describes
    run, taken = umbel.Run(algorithm, federation, umbel.Net(build)), []
    with tempfile.TemporaryDirectory() as place:
        began = process_time()
        for _ in run.rounds(rounds, folder=Path(place) / "run"):
            taken.append(process_time() - began)
            began = process_time()
    return taken


def asked(source: Path, network: str, method: str, rounds: int) -> list[float]:
    """The same of the package in a folder, by a process of its own."""
    words = ["-m", "benchmarks.revisions", "--inside", network, method, "--rounds", str(rounds)]
    found = subprocess.run(
        [sys.executable, *words],
        check=True,
        stdout=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(source), "OMP_NUM_THREADS": "1"},
    )
    seconds: list[float] = json.loads(found.stdout.splitlines()[-1])
    return seconds


def package(revision: str, place: Path) -> Path:
    """The package as it was in this revision, written below a folder."""
    words = ["git", "-C", str(ROOT), "archive", revision, "src"]
    archive = subprocess.run(words, check=False, capture_output=True)
    if archive.returncode:
        raise SystemExit(
            f"{revision}: not a revision of this repository: {archive.stderr.decode().strip()}"
        )
    with tarfile.open(fileobj=io.BytesIO(archive.stdout)) as files:
        files.extractall(place, filter="data")
    return place / "src"


def compared(sources: Sequence[Path], network: str, method: str, given: Any) -> list[str]:
    """A line of the table: each revision's first and usual round in ms, and how they compare."""
    first: list[list[float]] = [[] for _ in sources]
    later: list[list[float]] = [[] for _ in sources]
    for _ in range(given.repeats):
        for number, source in enumerate(sources):
            began, *others = asked(source, network, method, given.rounds)
            first[number].append(began)
            later[number] += others
    medians = [1000 * statistics.median(each) for each in (*first, *later)]
    return [
        network,
        method,
        *(f"{value:,.0f}" for value in medians),
        f"{medians[2] / medians[3]:.2f}",
    ]


def main() -> None:
    """Every method on both networks, before and after."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.revisions", description=__doc__)
    parser.add_argument(
        "revisions", nargs="*", metavar="REVISION", help="two, such as 86599cd HEAD"
    )
    parser.add_argument("--only", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=list(METHODS))
    parser.add_argument("--rounds", type=int, default=6, help="2 or more")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        network, method = given.inside
        sys.stdout.write(json.dumps(inside(network, method, given.rounds)) + "\n")
        return
    if len(given.revisions) != 2 or given.rounds < 2 or given.repeats < 1:
        parser.error("needs two revisions, --rounds of 2 or more, and --repeats of 1 or more")
    lines = Table(box=None, title="CPU milliseconds of a round on one core", title_justify="left")
    for header in ("", "method", "first before", "first after", "before", "after", "times as fast"):
        lines.add_column(header, justify="right")
    with tempfile.TemporaryDirectory() as place:
        sources = [package(each, Path(place) / str(n)) for n, each in enumerate(given.revisions)]
        for network in given.only:
            for method in given.methods:
                lines.add_row(*compared(sources, network, method, given))
    Console().print(lines)


if __name__ == "__main__":
    main()
