"""Which values of a gradient CFL-GP clusters by, and which it steps by:
`python -m benchmarks.few_values`.

It repeats two experiments of Kim et al. 2024, F.5 and E.1, on MNIST at four angles. With n_d = 2
(Table 7) decimals are cut for the features alone, for the step alone, or rounded in place of cut,
and the share of a gradient that is cut to zero is printed. With one value in 1,000 or 10,000
(Fig. 4) the values are drawn from all, or from those that are not zero in a client's gradient at
the first models. It needs `mnist` in the data directory.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import click
import numpy as np
import torch
from torch import Tensor

from umbel.algorithms.cfl_gp import CFLGP, CFLGPState
from umbel.client.batches import Shard
from umbel.client.net import Net
from umbel.client.work import Gradient, Promise, Quantised, Work
from umbel.client.work.feature import Feature
from umbel.data.sources import Sources
from umbel.engines import make_engine
from umbel.experiment.experiment import ExperimentSettings
from umbel.flow import Flow, Rows, drive
from umbel.papers.catalogue import REPRODUCTIONS
from umbel.run.rounds import Rounds
from umbel.server.ask import Context, gradients
from umbel.server.features import drawn

T = TypeVar("T")

LIVE = 0.5
"""Values are drawn from those that are not zero for at least this share of the clients."""


@dataclass(frozen=True)
class Rounded(Work):
    """The reply of `of`, rounded to some decimals."""

    of: Work
    digits: int

    @property
    def inner(self) -> Work:
        return self.of

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        reply = self.of(net, shard, sent)
        floats = {name for name, value in reply.items() if value.is_floating_point()}
        return reply | {name: reply[name].round(decimals=self.digits) for name in floats}

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        return self.of.promises(sent)


def features_alone(work: Work) -> Work:
    """The work without cut decimals, unless it is a feature."""
    return work.of if isinstance(work, Quantised) else work


def step_alone(work: Work) -> Work:
    """The work without cut decimals, if it is a feature."""
    return Feature(features_alone(work.of)) if isinstance(work, Feature) else work


def rounded(work: Work) -> Work:
    """The work that rounds what it would cut."""
    if isinstance(work, Feature):
        return Feature(rounded(work.of))
    return Rounded(work.of, work.digits) if isinstance(work, Quantised) else work


WAYS: Mapping[str, Callable[[Work], Work]] = {
    "cut": lambda work: work,
    "cut for features alone": features_alone,
    "cut for the step alone": step_alone,
    "rounded": rounded,
}


@dataclass(frozen=True)
class Changed(CFLGP):
    """CFL-GP with changed work of clients."""

    way: str = "cut"

    def round(self, state: CFLGPState, ctx: Context) -> Flow[CFLGPState]:
        return (yield from _changed(super().round(state, ctx), WAYS[self.way]))


def _changed(flow: Flow[T], change: Callable[[Work], Work]) -> Flow[T]:
    """The flow with changed work in each of its requests."""
    try:
        request = next(flow)
        while True:
            replies = yield replace(request, work=change(request.work))
            request = flow.send(replies)
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


def experiments(name: str, seed: int, columns: tuple[str, ...]) -> Mapping[str, ExperimentSettings]:
    """A reproduction's experiments with CFL-GP, by their columns."""
    cells = REPRODUCTIONS[name].cells("full")
    of = {c.column: c.experiment for c in cells if c.row == "CFL-GP" and c.column in columns}
    return {column: replace(of[column], seed=seed) for column in columns}


def changed(experiment: ExperimentSettings, way: str = "cut") -> Rounds:
    """The run of an experiment with changed work of clients."""
    usual = experiment.algorithm
    values: dict[str, Any] = {each.name: getattr(usual, each.name) for each in fields(usual)}
    return replace(experiment.open(Sources.default()), algorithm=Changed(**values, way=way))


def first_gradients(run: Rounds) -> Tensor:
    """(M, P): each client's gradient at the first model, uncut."""
    usual: Any = run.algorithm
    state, ctx = run.start(1), run.context(0, 1)
    theta = Rows(state.models[:1], torch.zeros_like(ctx.cohort))
    engine = make_engine(run.net, run.federation)
    work = Gradient(usual.gradient.batch_size)
    return drive(gradients(theta, ctx, work), engine).gradient


def cut_decimals(seed: int, rounds: int) -> None:
    """Table 7 with two decimals."""
    (experiment,) = experiments("cflgp-table7", seed, ("n_d = 2",)).values()
    zero = (first_gradients(changed(experiment)).abs() < 0.01).double().mean()
    click.echo(f"seed {seed}: n_d = 2 cuts {100 * zero:.1f}% of the first gradients to 0")
    for way in WAYS:
        *_, (_, record) = changed(experiment, way=way).rounds(rounds)
        assert record.accuracy is not None
        assert record.ari is not None
        click.echo(
            f"seed {seed}, {way}: accuracy {100 * record.accuracy:.1f}%, ARI {record.ari:.2f}"
        )


def few_coordinates(seed: int) -> None:
    """Fig. 4 with few values."""
    columns = ("ratio = 1000", "ratio = 10000")
    for column, experiment in experiments("cflgp-fig4", seed, columns).items():
        run = changed(experiment)
        live = (first_gradients(run) != 0).double().mean(0)
        values = torch.nonzero(live >= LIVE)[:, 0]
        method: Any = run.algorithm
        compression = method.compression * len(values) / len(live)
        few = drawn(values, compression, np.random.default_rng(seed))
        usual: Any = run.start(experiment.rounds)
        for source, start in ("all", usual), ("live", replace(usual, coordinates=few)):
            zero = 1 - live[start.coordinates].mean()
            aris = [record.ari or 0.0 for _, record in run.rounds(experiment.rounds, start)]
            click.echo(
                f"seed {seed}, {column}, drawn from {source}: {len(start.coordinates)} values, "
                f"{100 * zero:.0f}% zero at first; ARI {aris[1]:.2f} after 2 rounds, "
                f"{aris[10]:.2f} after 11, {aris[20]:.2f} after 21"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rounds", type=int, default=200, help="of the runs with cut decimals")
    options = parser.parse_args()
    for seed in range(options.seeds):
        few_coordinates(seed)
    for seed in range(options.seeds):
        cut_decimals(seed, options.rounds)


if __name__ == "__main__":
    main()
