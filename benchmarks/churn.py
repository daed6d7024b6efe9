"""Rounds of a federation whose clients come and leave: `python -m benchmarks.churn`.

10,000 clients are there, with four examples and a linear model. Before each round 1% leave, and as
many come, of as many clients that are away. The seconds of a round and the memory of the process
must not grow, nor the state.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

from benchmarks.__main__ import machine
from benchmarks.many_clients import CLASSES, Case, federation
from benchmarks.measure import pin
from umbel.algorithms import FLACC, IFCA, FedAvg
from umbel.algorithms.base import Algorithm
from umbel.client.net import Net
from umbel.client.work import LocalTraining
from umbel.networks import Linear
from umbel.result.run import Run
from umbel.run.membership import Membership

LOCAL = LocalTraining(lr=0.05, epochs=1, batch_size=10)
METHODS: dict[str, Algorithm[Any]] = {
    "fedavg": FedAvg(LOCAL),
    "ifca": IFCA(4, LOCAL),
    "flacc": FLACC(LOCAL),
}
COHORT = 100


def memory_mb() -> float:
    """The memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def measured(method: str, clients: int, rounds: int, rate: float) -> dict[str, Any]:
    """One row: medians over the first and the last quarter of the rounds."""
    case = Case(2 * clients, 4, (20,), Linear)
    net = Net(lambda: case.model().build(case.shape, CLASSES))
    membership = Membership(joining=rate, leaving=rate, share=0.5)
    run = Run(
        METHODS[method],
        federation(case, case.clients),
        net,
        participation=COHORT / clients,
        evaluate_every=rounds,
        membership=membership,
    )
    seconds: list[float] = []
    memory: list[float] = []
    sizes: list[int] = []
    moves = 0
    began = perf_counter()
    for state, record in run.rounds(rounds):
        seconds.append(perf_counter() - began)
        memory.append(memory_mb())
        sizes.append(len(state.labels))
        moves += len(record.joined or ()) + len(record.left or ())
        began = perf_counter()
    quarter = max(1, rounds // 4)
    # The first round builds the engine, and the last one is evaluated.
    parts = slice(1, 1 + quarter), slice(-1 - quarter, -1)
    return {
        "method": method,
        "clients": clients,
        "rounds": rounds,
        "moves": moves,
        "seconds": [median(seconds[part]) for part in parts],
        "memory_mb": [median(memory[part]) for part in parts],
        "members": [median(sizes[part]) for part in parts],
    }


def rows(args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for method in args.only or METHODS:
        row = measured(method, args.clients, args.rounds, args.rate)
        said = {name: [round(v, 3) for v in row[name]] for name in ("seconds", "memory_mb")}
        sys.stdout.write(f"{method}: {row['moves']} moves; first and last quarter: {said}\n")
        yield row


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--rate", type=float, default=0.01)
    parser.add_argument("--only", nargs="*", choices=METHODS)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args(argv)
    pin()
    found = list(rows(args))
    if args.json is not None:
        args.json.write_text(json.dumps({"machine": machine(), "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
