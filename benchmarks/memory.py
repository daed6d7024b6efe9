"""One round of many clients with a large model, all asked: `python -m benchmarks.memory`.

10,000 rows of 1.6 million values would take 60 GiB; only their sums are ever held.
"""

from __future__ import annotations

import argparse
import sys
from time import perf_counter

import numpy as np

from benchmarks.measure import peak_memory_mb
from umbel.algorithms import IFCA, FedAvg
from umbel.client.net import Net
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.networks import MLP
from umbel.result.run import Run


def main() -> None:
    """Run it, and print the time and the peak memory."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.memory", description=__doc__)
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--method", choices=["fedavg", "ifca"], default="fedavg")
    given = parser.parse_args()
    rng = np.random.default_rng(0)
    shards = [
        (rng.random((8, 784), dtype=np.float32), rng.integers(0, 10, 8))
        for _ in range(given.clients)
    ]
    federation = Federation.from_arrays(shards, test_fraction=0.25, num_classes=10)
    net = Net(lambda: MLP((2000,)).build((784,), 10))
    local = LocalTraining(lr=0.05, epochs=1, batch_size=8)
    method = FedAvg(local) if given.method == "fedavg" else IFCA(2, local)
    began = perf_counter()
    for _, record in Run(method, federation, net).rounds(1):
        sys.stdout.write(
            f"{given.method}, {given.clients} clients x {net.layout.num_values} parameters: "
            f"{perf_counter() - began:.0f} s, {peak_memory_mb():.0f} MiB, "
            f"loss {record.loss:.3f}\n"
        )


if __name__ == "__main__":
    main()
