"""Rounds of very many clients, a hundredth of them asked: `python -m benchmarks.many_clients`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from time import perf_counter

import numpy as np
import torch

from benchmarks.measure import peak_memory_mb
from umbel.algorithms import IFCA, FedAvg
from umbel.client.net import Net
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.data.splits import Split
from umbel.engines import EngineSettings
from umbel.networks import CNN, Linear, Model
from umbel.result.run import Run

PARTICIPATION, CLASSES = 0.01, 10


@dataclass(frozen=True)
class Case:
    """The number of clients, and their model."""

    clients: int
    examples: int  # of each, for training; one besides for the test
    shape: tuple[int, ...]
    model: Callable[[], Model]


CASES = {
    "cnn": Case(100_000, 5, (1, 28, 28), CNN),
    "linear": Case(1_000_000, 4, (20,), Linear),
}


def federation(case: Case, clients: int) -> Federation:
    """Random examples, generated in place because memory has no room for two copies."""
    rng = np.random.default_rng(0)

    def split(each: int) -> Split:
        rows = clients * each
        x = rng.random((rows, *case.shape), dtype=np.float32)
        y = torch.from_numpy(rng.integers(0, CLASSES, rows))
        return Split(torch.from_numpy(x), y, np.arange(clients + 1, dtype=np.int64) * each)

    names = tuple(map(str, range(clients)))
    return Federation(split(case.examples), split(1), num_classes=CLASSES, names=names)


def main(arguments: Sequence[str] | None = None) -> None:
    """One line per method: seconds of a round and of the last with its evaluation, and memory."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.many_clients", description=__doc__)
    parser.add_argument("case", choices=CASES)
    parser.add_argument("--clients", type=int, help="by default 100,000 and 1,000,000")
    parser.add_argument("--method", choices=["fedavg", "ifca"], default="fedavg")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--workers", type=int, default=2)
    given = parser.parse_args(arguments)
    case = CASES[given.case]
    count = given.clients or case.clients
    net = Net(lambda: case.model().build(case.shape, CLASSES))
    local = LocalTraining(lr=0.05, epochs=1, batch_size=case.examples)
    method = FedAvg(local) if given.method == "fedavg" else IFCA(2, local)
    run = Run(
        method,
        federation(case, count),
        net,
        participation=PARTICIPATION,
        evaluate_every=given.rounds,
        engine=EngineSettings(device="cpu", workers=given.workers),
    )
    taken, began = [], perf_counter()
    for _, _record in run.rounds(given.rounds):
        taken.append(perf_counter() - began)
        began = perf_counter()
    seconds = float(np.median(taken[1:-1] or taken))
    sys.stdout.write(
        f"{given.method}, {count:,} clients, of whom {run.cohort_size:,} are asked, "
        f"{net.layout.num_values:,} values, {case.examples * prod(case.shape):,} numbers a client: "
        f"{seconds:.1f} s a round, {taken[-1]:.1f} s with the evaluation of all, "
        f"{peak_memory_mb():,.0f} MiB in the main process\n"
    )


if __name__ == "__main__":
    main()
