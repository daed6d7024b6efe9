"""The share of right advice of `umbel advise`, on 40 federations with known numbers of groups.

    python -m benchmarks.advice

Federations that are done are kept in benchmarks/results/advice.json and not done again.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

import umbel
from benchmarks.planted import Planted, forty
from benchmarks.result_files import check_folder
from umbel.networks import MLP
from umbel.run.scores import adjusted_rand_index

KEPT = Path(__file__).parent / "results" / "advice.json"

ROUNDS = 80
"""Rounds of the oracle and of one model, which show whether groups matter."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """The advice for one federation, and whether its groups matter."""

    source: str
    shift: str
    seed: int
    clients: int
    groups: int  # K
    answer: str
    advised: int  # number of advised clusters, 1 for one model
    ari: float  # ARI of the clusters with the groups
    gain: float  # decrease of the test loss with the true groups, mean over clients
    error: float  # standard error of the gain over clients
    seconds: float

    @property
    def matters(self) -> bool:
        """Whether the oracle beats one model by two standard errors."""
        return self.groups > 1 and self.gain > 2 * self.error

    @property
    def right(self) -> bool:
        """Whether the advice is the number of groups, or off by one if there are many groups."""
        if self.groups == 1:
            return self.answer == "one model"
        return abs(self.advised - self.groups) <= (self.groups >= 6)


def measured(planted: Planted) -> Row:
    """Ask for advice, and train in the true groups and with one model."""
    federation = planted.build()
    net = umbel.Net(lambda: MLP((64,)).build(federation.input_shape, federation.num_outputs))
    began = perf_counter()
    advice = umbel.advise(federation, net)
    seconds = perf_counter() - began
    truth = federation.groups
    assert truth is not None
    methods = (umbel.FedAvg(local=advice.local), umbel.Oracle(local=advice.local))
    one, oracle = (_losses(umbel.Run(method, federation, net)) for method in methods)
    gains = one - oracle
    return Row(
        source=planted.source,
        shift=planted.shift if planted.groups > 1 else "none",
        seed=planted.seed,
        clients=federation.num_clients,
        groups=planted.groups,
        answer=advice.verdict.answer,
        advised=advice.verdict.num_clusters,
        ari=adjusted_rand_index(truth, advice.verdict.clusters),
        gain=float(gains.mean()),
        error=float(gains.std(ddof=1) / np.sqrt(len(gains))),
        seconds=seconds,
    )


def _losses(run: umbel.Run) -> NDArray[np.float64]:
    """The test loss of each client in the best of the rounds."""
    evaluated = [
        scores.loss
        for _, _, scores in run.scored_rounds(ROUNDS, run.start(ROUNDS), 0)
        if scores is not None
    ]
    return min(evaluated, key=lambda losses: float(losses.mean()))


def table(rows: Sequence[Row]) -> str:
    """In Markdown."""
    heads = ("clients", "groups", "groups differ by", "gain of the oracle", "answer", "K", "ARI")
    lines = [f"| {' | '.join(heads)} |", f"|{'---|' * len(heads)}"]
    for row in rows:
        gain = f"{row.gain:.3f} ± {row.error:.3f}{'' if row.matters else ' (not counted)'}"
        cells = (
            f"{row.clients}, {row.source}",
            str(row.groups),
            row.shift,
            "" if row.groups == 1 else gain,
            row.answer,
            f"{row.advised}{'' if row.right else ' ✗'}",
            f"{row.ari:.2f}",
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def verdict(rows: Sequence[Row]) -> str:
    """The share of right advice."""
    alone = [row for row in rows if row.groups == 1]
    counted = [row for row in rows if row.matters]
    return (
        f"one model where there are no groups: {sum(r.right for r in alone)} of {len(alone)}; "
        f"the right number where groups matter: {sum(r.right for r in counted)} of {len(counted)}"
    )


def main(argv: Sequence[str] | None = None) -> None:
    """Do the missing runs, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first-seed", type=int, default=5000)
    parser.add_argument("--out", type=Path, default=KEPT)
    given = parser.parse_args(argv)
    check_folder(given.out)
    console = Console()
    rows = [Row(**row) for row in json.loads(given.out.read_text())] if given.out.is_file() else []
    done = {row.seed for row in rows}
    for planted in forty(given.first_seed):
        if planted.seed not in done:
            rows.append(measured(planted))
            given.out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
            console.print(rows[-1])
    console.print(table(rows), soft_wrap=True, markup=False)
    console.print(verdict(rows))


if __name__ == "__main__":
    main()
