"""Whole rounds with robust rules of averages beside the mean: `python -m benchmarks.robust`.

Rounds of 100 clients with an MLP of 1.6 million values take turns in one process.
On a machine that does other things, only CPU seconds tell something.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Mapping, Sequence
from time import perf_counter, process_time

import click
import numpy as np

from umbel.algorithms import FedAvg
from umbel.client.net import Net
from umbel.client.objectives import CLASSIFICATION
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.networks import MLP
from umbel.result.run import Run
from umbel.server.aggregation import RULES, Averaging

LEFT_OUT = ("fedavgm", "fedadagrad", "fedadam", "fedyogi", "fltrust")


def times(
    clients: int, examples: int, hidden: tuple[int, ...], rounds: int, rules: Sequence[str]
) -> Mapping[str, Sequence[tuple[float, float]]]:
    """Seconds and CPU seconds of each round but the first by rule: an epoch of batches of 20."""
    rng = np.random.default_rng(0)
    federation = Federation.from_arrays(
        [
            (rng.random((examples, 784), dtype=np.float32), rng.integers(0, 10, examples))
            for _ in range(clients)
        ],
        [(rng.random((5, 784), dtype=np.float32), rng.integers(0, 10, 5)) for _ in range(clients)],
        num_classes=10,
    )
    net = Net(lambda: MLP(hidden=hidden).build((784,), 10), CLASSIFICATION)
    local = LocalTraining(epochs=1, batch_size=20)
    runs = {
        rule: Run(FedAvg(local, Averaging(rule=RULES[rule]())), federation, net).rounds(rounds + 1)
        for rule in rules
    }
    taken: dict[str, list[tuple[float, float]]] = {rule: [] for rule in rules}
    for _ in range(rounds + 1):
        for rule, run in runs.items():
            began, working = perf_counter(), process_time()
            next(run)
            taken[rule].append((perf_counter() - began, process_time() - working))
    return {rule: seconds[1:] for rule, seconds in taken.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the median seconds of a round with each rule, and how often those of the mean."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--examples", type=int, default=100, help="of each client")
    parser.add_argument("--hidden", type=int, nargs="*", default=[1250, 500])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--rules", nargs="*", default=[r for r in RULES if r not in LEFT_OUT])
    options = parser.parse_args(arguments)
    size = options.clients, options.examples, tuple(options.hidden), options.rounds
    found = {
        rule: [statistics.median(column) for column in zip(*taken, strict=True)]
        for rule, taken in times(*size, options.rules).items()
    }
    first = found[options.rules[0]]
    for rule, (wall, cpu) in found.items():
        times_as_long = f"{wall / first[0]:5.2f} and {cpu / first[1]:5.2f} times"
        click.echo(f"{rule:18} {wall:7.2f} s, CPU {cpu:7.2f} s: {times_as_long}")


if __name__ == "__main__":
    main()
