"""Transformers batched over clients and one client after another: `python -m benchmarks.sequences`.

The rule of `engine.name = "auto"` rests on it (umbel/engines/choice.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import product

import numpy as np
import torch

from benchmarks.measure import Timing, alternate, difference, pin
from benchmarks.workloads import ask
from umbel.client.batches import IGNORED
from umbel.client.net import Net
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.engines import Sequential, Vectorised
from umbel.flow import Engine, Rows
from umbel.networks import CharTransformer

LENGTH, SYMBOLS, EXAMPLES = 25, 40, 96

MODELS = (
    CharTransformer(width=32, heads=2, layers=1, hidden=64),
    CharTransformer(),
)


@dataclass(frozen=True)
class Case:
    """Clients who all train a network for an epoch."""

    model: CharTransformer
    clients: int
    batch_size: int

    @property
    def engines(self) -> tuple[Engine, Engine]:
        """One client after another, and batched."""
        net = Net(partial(self.model.build, (LENGTH,), SYMBOLS))
        federation = sequences(self.clients)
        return Sequential(net.using("in-place"), federation), Vectorised(net, federation)

    def training(self, engine: Engine) -> Callable[[], torch.Tensor]:
        """Updates (N, P)."""
        net = Net(partial(self.model.build, (LENGTH,), SYMBOLS))
        theta = Rows(net.new(0)[None], torch.zeros(self.clients, dtype=torch.long))
        work = LocalTraining(lr=0.1, epochs=1, batch_size=self.batch_size)
        return lambda: ask(engine, work, self.clients, theta=theta)["update"]


def sequences(clients: int) -> Federation:
    """Random symbols of unequal length, as the time does not depend on what they say."""
    rng = np.random.default_rng(0)
    shards = []
    for _ in range(clients):
        x, y = rng.integers(0, SYMBOLS, (2, EXAMPLES, LENGTH))
        y[np.arange(LENGTH) >= rng.integers(3, LENGTH, EXAMPLES)[:, None]] = IGNORED
        shards.append((x, y))
    return Federation.from_arrays(shards, test_fraction=0.0, num_classes=SYMBOLS)


def cases() -> Iterator[Case]:
    """Each network with few and many clients, and small and large mini-batches."""
    for model, clients, batch_size in product(MODELS, (10, 50), (8, 32)):
        yield Case(model, clients, batch_size)


def compared(case: Case, repeats: int) -> tuple[Timing, Timing]:
    """CPU seconds one after another and batched, in turns, of the same updates."""
    contenders = [case.training(engine) for engine in case.engines]
    one_by_one, batched = (contender() for contender in contenders)
    assert difference(batched, one_by_one) < 1e-3
    first, second = alternate(list(contenders), repeats, "cpu")
    return first, second


def main() -> None:
    """Print a table in Markdown: a row for each network, number of clients and batch size."""
    pin()
    say = sys.stdout.write
    say("| width, layers | clients | batch | one after another | batched | times as fast |\n")
    say("|---|---:|---:|---:|---:|---:|\n")
    for case in cases():
        alone, batched = compared(case, repeats=3)
        sizes = f"{case.model.width}, {case.model.layers} | {case.clients} | {case.batch_size}"
        ratio = alone.median / batched.median
        say(f"| {sizes} | {alone.median:.2f} s | {batched.median:.2f} s | {ratio:.2f} |\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
