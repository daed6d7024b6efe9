"""Throughput against the number of workers: `python -m benchmarks.workers`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from time import perf_counter

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.measure import Timing
from benchmarks.workloads import ask, classifier, images
from umbel.client.net import Net
from umbel.client.work import LocalTraining
from umbel.cores import cores
from umbel.data.federation import Federation
from umbel.engines import EngineSettings, make_engine
from umbel.flow import Engine, Rows
from umbel.networks import CNN

CLIENTS, EXAMPLES = 20, (100, 400)


def sizes_of(clients: int, examples: Sequence[int] = EXAMPLES) -> Sequence[int]:
    """How many examples each of so many clients has: from the first number to the last."""
    return [int(size) for size in np.linspace(examples[0], examples[-1], clients)]


LENGTH, LETTERS = 80, 64
"""Characters of an example, and kinds of characters."""


class CharLSTM(nn.Module):
    """The next character, by two layers of an LSTM."""

    def __init__(self) -> None:
        super().__init__()
        self.embedded = nn.Embedding(LETTERS, 8)
        self.lstm = nn.LSTM(8, 128, num_layers=2, batch_first=True)
        self.head = nn.Linear(128, LETTERS)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.lstm(self.embedded(x))[0][:, -1])
        return out


class CharTransformer(nn.Module):
    """The next character, by two layers of attention."""

    def __init__(self) -> None:
        super().__init__()
        self.embedded = nn.Embedding(LETTERS, 64)
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(64, LETTERS)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.layers(self.embedded(x))[:, -1])
        return out


def convolutions(shape: tuple[int, ...], sizes: Sequence[int]) -> tuple[Net, Federation]:
    """W3's and W4's network and clients of unequal size."""
    net, _ = classifier(CNN(), shape)
    return net, images(sizes, shape)


def letters(build: Callable[[], nn.Module], sizes: Sequence[int]) -> tuple[Net, Federation]:
    """Random characters, as the time does not depend on what they say."""
    rng = np.random.default_rng(0)
    shards = [
        (rng.integers(0, LETTERS, (size, LENGTH)), rng.integers(0, LETTERS, size)) for size in sizes
    ]
    return Net(build), Federation.from_arrays(shards, test_fraction=0.0, num_classes=LETTERS)


CASES: dict[str, Callable[[Sequence[int]], tuple[Net, Federation]]] = {
    "W3": partial(convolutions, (1, 28, 28)),
    "W4": partial(convolutions, (3, 32, 32)),
    "LSTM": partial(letters, CharLSTM),
    "transformer": partial(letters, CharTransformer),
}


def trained(engine: Engine, theta: Tensor, clients: int, epochs: int) -> Tensor:
    """(N, P) updates of all clients after these epochs."""
    rows = Rows(theta[None], torch.zeros(clients, dtype=torch.long))
    work = LocalTraining(lr=0.05, epochs=epochs, batch_size=32)
    return ask(engine, work, clients, theta=rows)["update"]


def compared(
    name: str, counts: Sequence[int], repeats: int, sizes: Sequence[int], epochs: int = 1
) -> dict[int, Timing]:
    """Seconds of a request by the number of workers, in turns; all must give the same bits."""
    net, federation = CASES[name](sizes)
    theta, clients = net.new(0), len(sizes)
    engines = {
        n: make_engine(net, federation, EngineSettings(device="cpu", workers=n)) for n in counts
    }
    expected = trained(engines[counts[0]], theta, clients, epochs)
    taken: dict[int, list[float]] = {n: [] for n in counts}
    for _ in range(repeats):
        for n, engine in engines.items():
            began = perf_counter()
            found = trained(engine, theta, clients, epochs)
            taken[n].append(perf_counter() - began)
            assert torch.equal(found, expected), f"{n} workers give other bits"
    return {n: Timing.of(seconds) for n, seconds in taken.items()}


def main() -> None:
    """A line a network, with the throughput beside that of one worker."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.workers", description=__doc__)
    parser.add_argument("--only", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--workers", type=int, nargs="+", default=[1, cores()])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--clients", type=int, default=CLIENTS)
    parser.add_argument(
        "--examples",
        type=int,
        nargs="+",
        default=EXAMPLES,
        help="of the smallest client and the largest",
    )
    parser.add_argument("--epochs", type=int, default=1)
    given = parser.parse_args()
    sizes = sizes_of(given.clients, given.examples)
    for name in given.only:
        found = compared(name, given.workers, given.repeats, sizes, given.epochs)
        first = found[given.workers[0]]
        for n, timing in found.items():
            sys.stdout.write(
                f"{name}: {n} workers {timing.median:.2f} s ({timing.low:.2f} to {timing.high:.2f})"
                f", {first.median / timing.median:.2f} times the throughput\n"
            )


if __name__ == "__main__":
    main()
