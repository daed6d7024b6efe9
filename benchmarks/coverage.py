"""How often intervals exclude zero without a difference: `python -m benchmarks.coverage`.

Comparisons are simulated: gains of clients under seeds, whose mean is zero. Beside the interval
that umbel reports stand the two that it is the wider of, and the bootstrap that draws seeds and
then clients within each, whose percentiles many papers report.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from umbel.result.statistics.crossed import Crossed, spread_of
from umbel.result.statistics.paired import Gain, by_t, interval
from umbel.result.statistics.resampling import by_bootstrap

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class World:
    """The components of gains, as standard deviations of accuracies."""

    name: str
    lasting: float = 0.0  # of clients, equal for all seeds
    seeds: float = 0.0  # of seeds, equal for all clients
    groups: float = 0.0  # of four groups of clients under each seed, as where a cluster is missed
    noise: float = 0.05  # of single results
    tails: Literal["normal", "heavy", "skewed"] = "normal"
    unequal: bool = False  # clients' numbers of test examples, and so their noise
    examples: int | None = None  # for testing, of which few make accuracies coarse

    def gains(self, rng: np.random.Generator, seeds: int, clients: int) -> Floats:
        """A comparison without a difference: (seeds, clients)."""
        sizes = rng.lognormal(0, 1, clients) if self.unequal else np.ones(clients)
        values: Floats = self.noise * self._drawn(rng, (seeds, clients)) / np.sqrt(sizes)
        values = values + self.lasting * self._drawn(rng, (1, clients))
        values = values + self.seeds * self._drawn(rng, (seeds, 1))
        values = values + self.groups * self._drawn(rng, (seeds, 4))[:, np.arange(clients) % 4]
        if self.examples is not None:
            values = np.round(values * self.examples) / self.examples
        return values

    def _drawn(self, rng: np.random.Generator, shape: tuple[int, int]) -> Floats:
        if self.tails == "heavy":
            heavy: Floats = rng.standard_t(3, shape) / np.sqrt(3)
            return heavy
        return rng.normal(size=shape) if self.tails == "normal" else rng.exponential(size=shape) - 1


WORLDS = (
    World(name="other clients under each seed"),
    World(name="the same clients", lasting=0.05),
    World(name="the same clients, unequal, heavy tails", lasting=0.05, unequal=True, tails="heavy"),
    World(name="the same clients, few gain much", lasting=0.05, tails="skewed"),
    World(name="few test examples", lasting=0.03, examples=12),
    World(name="seeds differ", seeds=0.03),
    World(name="clients and seeds differ", lasting=0.05, seeds=0.02, unequal=True),
    World(name="clusters are missed", groups=0.1, lasting=0.02),
)


@dataclass(frozen=True)
class Rate:
    """Shares of comparisons whose interval excludes zero, by the kind of interval."""

    world: World
    seeds: int
    clients: int
    shares: dict[str, float]


def rates(
    worlds: Sequence[World],
    seeds: Sequence[int],
    clients: Sequence[int],
    comparisons: int,
    samples: int,
    *,
    others: bool = True,
) -> Iterator[Rate]:
    """Simulate comparisons of every world and size; with one seed only where seeds do not vary."""
    for world in worlds:
        for num_seeds in seeds:
            if num_seeds == 1 and (world.seeds or world.groups):
                continue  # one seed can't show the variation over seeds
            for size in clients:
                rng = np.random.default_rng((num_seeds, size))
                found = [
                    _excluding(world.gains(rng, num_seeds, size), rng, samples, others)
                    for _ in range(comparisons)
                ]
                shares = {kind: float(np.mean([each[kind] for each in found])) for kind in found[0]}
                yield Rate(world, num_seeds, size, shares)


def _excluding(
    values: Floats, rng: np.random.Generator, samples: int, others: bool
) -> dict[str, bool]:
    """Whether each interval excludes zero."""
    gains = [
        Gain(client=str(client), seed=seed, value=float(value), now=0, before=0)
        for (seed, client), value in np.ndenumerate(values)
    ]
    excluding = {"umbel": interval(gains, samples).sure}
    if others:
        table = Crossed(values, np.ones_like(values))
        whole = spread_of(table)
        ends = {"t": by_t(table, whole), "bootstrap-t": by_bootstrap(table, whole, samples)}
        excluding |= {kind: each.low > 0 or each.high < 0 for kind, each in ends.items()}
        low, high = np.quantile(_nested(values, rng, samples), [0.025, 0.975])
        excluding["percentiles"] = bool(low > 0 or high < 0)
    return excluding


def _nested(values: Floats, rng: np.random.Generator, samples: int) -> Floats:
    """Means of samples of seeds, and in each of these of clients."""
    seeds, clients = values.shape
    rows = rng.integers(seeds, size=(samples, seeds, 1))
    means: Floats = values[rows, rng.integers(clients, size=(samples, seeds, clients))].mean((1, 2))
    return means


def main() -> None:
    """Read the command line, simulate, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.coverage", description=__doc__)
    parser.add_argument("--comparisons", type=int, default=200)
    parser.add_argument("--seeds", type=int, nargs="*", default=[1, 2, 3, 5])
    parser.add_argument("--clients", type=int, nargs="*", default=[10, 20, 50])
    parser.add_argument("--samples", type=int, default=999, help="of each bootstrap")
    given = parser.parse_args()
    table = Table("world", "seeds", "clients", "umbel", "t", "bootstrap-t", "percentiles")
    found = [*rates(WORLDS, given.seeds, given.clients, given.comparisons, given.samples)]
    for rate in found:
        table.add_row(rate.world.name, str(rate.seeds), str(rate.clients), *_cells([rate], max))
    table.add_section()
    for seeds in given.seeds:
        some = [rate for rate in found if rate.seeds == seeds]
        table.add_row("the worst", str(seeds), "", *(_cells(some, max) if some else ()))
    table.add_row("mean of all settings", "", "", *_cells(found, fmean))
    Console().print(table)


def _cells(found: Sequence[Rate], of: Callable[[list[float]], float]) -> list[str]:
    """A cell for each kind of interval."""
    return [f"{of([rate.shares[kind] for rate in found]):.1%}" for kind in found[0].shares]


if __name__ == "__main__":
    main()
