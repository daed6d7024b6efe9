"""How a round grows with clients, values and clusters: `python -m benchmarks.growth`.

All clients take part. Each size is a process of its own on one core, whose first round is not
timed; the third is also evaluated. Steps of servers are timed alone.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from time import process_time
from typing import Any

from benchmarks.__main__ import machine
from benchmarks.many_clients import CLASSES, Case, federation
from benchmarks.measure import peak_memory_mb, pin
from benchmarks.report import growth_markdown
from benchmarks.result_files import earlier
from benchmarks.server import STEPS
from benchmarks.server import measured as step_measured
from umbel.algorithms import IFCA, FedAvg
from umbel.algorithms.base import Algorithm
from umbel.client.net import Net
from umbel.client.work import LocalTraining
from umbel.networks import MLP, Linear
from umbel.result.run import Run

IMAGE = (784,)

SIZES: dict[str, tuple[str, list[int]]] = {
    "clients": ("FedAvg, linear model of 210 values, 4 examples", [10**n for n in range(2, 7)]),
    # An MLP 784-h-10 has 795 h + 10 values.
    "values": ("FedAvg, MLP 784-h-10, 10 clients x 50", [1, 13, 126, 1258, 12_579]),
    "clusters": ("IFCA, MLP 784-200-10, 100 clients x 50", [2, 5, 10, 20, 50]),
}
"""What is measured by what grows, and its sizes; those of values are widths of the hidden layer."""

SERVER = "server"


def case_of(growing: str, size: int) -> tuple[Case, Algorithm[Any]]:
    """The clients with their model, and the method."""
    local = LocalTraining(lr=0.05, epochs=1, batch_size=10)
    if growing == "clients":
        return Case(size, 4, (20,), Linear), FedAvg(local)
    if growing == "values":
        return Case(10, 50, IMAGE, partial(MLP, (size,))), FedAvg(local)
    return Case(100, 50, IMAGE, MLP), IFCA(size, local)


def measured(growing: str, size: int) -> dict[str, Any]:
    """One row."""
    case, method = case_of(growing, size)
    net = Net(lambda: case.model().build(case.shape, CLASSES))
    run, taken = Run(method, federation(case, case.clients), net, evaluate_every=3), []
    began = process_time()
    for _ in run.rounds(3):
        taken.append(process_time() - began)
        began = process_time()
    return {
        "part": growing,
        "growing": growing,
        "what": SIZES[growing][0],
        "size": net.layout.num_values if growing == "values" else size,
        "seconds": taken[1],
        "evaluation": max(0.0, taken[2] - taken[1]),
        "memory_mb": peak_memory_mb(),
    }


def of_server(largest: int) -> Iterator[dict[str, Any]]:
    """The rows of the server's own work."""
    for name, (_, sizes, _) in STEPS.items():
        for size in (each for each in sizes if each <= largest):
            row = step_measured(name, size)
            kept = {key: row[key] for key in ("seconds", "memory_mb")}
            about = {"part": SERVER, "growing": "clients", "what": name, "size": size}
            yield {**about, **kept, "evaluation": None}


def of_rounds(growing: str, largest: int) -> Iterator[dict[str, Any]]:
    """The rows of whole rounds, each of a process of its own."""
    for size in (each for each in SIZES[growing][1] if each <= largest):
        words = ["-m", "benchmarks.growth", "--inside", growing, str(size)]
        done = subprocess.run(
            [sys.executable, *words], check=True, stdout=subprocess.PIPE, text=True
        )
        yield json.loads(done.stdout.splitlines()[-1])


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure every size, and print a table in Markdown."""
    parts = [*SIZES, SERVER]
    parser = argparse.ArgumentParser(prog="python -m benchmarks.growth", description=__doc__)
    parser.add_argument("--only", nargs="*", choices=parts, default=parts)
    parser.add_argument("--largest", type=int, default=10**6, help="leave out larger sizes")
    parser.add_argument("--json", type=Path, help="write the results here")
    parser.add_argument("--inside", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args(arguments)
    if given.inside:
        pin()
        growing, size = given.inside
        sys.stdout.write(json.dumps(measured(growing, int(size))) + "\n")
        return
    about = {"machine": machine()}
    there = earlier(given.json, about, ["growth"]).get("growth", [])
    rows = [row for row in there if row["part"] not in given.only]
    for part in given.only:
        for row in of_server(given.largest) if part == SERVER else of_rounds(part, given.largest):
            rows = sorted([*rows, row], key=lambda row: parts.index(row["part"]))
            if given.json:
                given.json.write_text(json.dumps({**about, "growth": rows}, indent=1) + "\n")
    sys.stdout.write(growth_markdown({**about, "growth": rows}))


if __name__ == "__main__":
    main()
