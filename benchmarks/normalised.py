"""Normalised MLPs batched, one by one, and in bfloat16: `python -m benchmarks.normalised`.

The rules of `engine.name = "auto"` and `engine.precision = "bf16"` for networks without
convolutions, recurrent layers and attention rest on it (umbel/engines/choice.py, precision.py).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

import torch
from torch import Tensor, nn

from benchmarks.measure import Timing, alternate, difference, pin
from benchmarks.workloads import ask, images
from umbel.client.net import Net
from umbel.client.work import LocalTraining
from umbel.engines import Sequential, Vectorised
from umbel.engines.precision import bf16_units
from umbel.flow import Engine, Rows

CLIENTS, EXAMPLES = 20, 100

UNITS = (16, 64, 128, 200, 400, 1024)


@dataclass(frozen=True)
class Case:
    """Clients who all train a network with two normalised layers of so many units for an epoch."""

    units: int
    batch_size: int

    @property
    def net(self) -> Net:
        """The network."""
        return Net(self._build)

    def _build(self) -> nn.Module:
        units = self.units
        first = (nn.Flatten(), nn.Linear(784, units), nn.LayerNorm(units), nn.ReLU())
        second = (nn.Linear(units, units), nn.LayerNorm(units), nn.ReLU())
        return nn.Sequential(*first, *second, nn.Linear(units, 10))

    def training(self) -> list[Callable[[], Tensor]]:
        """Functions that return updates (N, P): one by one, batched, and in bfloat16."""
        net, federation = self.net, images([EXAMPLES] * CLIENTS, (1, 28, 28))
        alone = net.using("in-place")
        engines: list[Engine] = [Sequential(alone, federation), Vectorised(net, federation)]
        if bf16_units():
            engines.append(Sequential(net.using("in-place", "bf16"), federation))
        theta = Rows(net.new(0)[None], torch.zeros(CLIENTS, dtype=torch.long))
        work = LocalTraining(lr=0.05, epochs=1, batch_size=self.batch_size)
        return [partial(_updates, engine, work, theta) for engine in engines]


def _updates(engine: Engine, work: LocalTraining, theta: Rows) -> Tensor:
    return ask(engine, work, CLIENTS, theta=theta)["update"]


def cases() -> Iterator[Case]:
    """Small and large networks, and small and large mini-batches."""
    for units, batch_size in product(UNITS, (5, 20, 64)):
        yield Case(units, batch_size)


def compared(case: Case, repeats: int) -> list[Timing]:
    """CPU seconds one by one, batched, and in bfloat16 where there is such, in turns."""
    contenders = case.training()
    assert difference(contenders[1](), contenders[0]()) < 1e-3
    return alternate([*contenders], repeats, "cpu")


def row(case: Case, timings: Sequence[Timing]) -> str:
    """A line of the table."""
    alone, batched, *half = (timing.median for timing in timings)
    told = [f"{case.units}", f"{case.net.layout.num_values:,}", f"{case.batch_size}"]
    told += [f"{1000 * alone:.0f}", f"{1000 * batched:.0f}", f"{alone / batched:.2f}"]
    told += [text for each in half for text in (f"{1000 * each:.0f}", f"{alone / each:.2f}")]
    return f"| {' | '.join(told)} |\n"


def main() -> None:
    """Print a table in Markdown: a row for each network and batch size."""
    pin()
    half = "bf16, ms | times as fast |" if bf16_units() else ""
    sys.stdout.write(
        f"| units | values | batch | alone, ms | batched, ms | times as fast | {half}\n"
    )
    sys.stdout.write(f"|{'---:|' * (8 if half else 6)}\n")
    for case in cases():
        sys.stdout.write(row(case, compared(case, repeats=3)))
        sys.stdout.flush()


if __name__ == "__main__":
    main()
