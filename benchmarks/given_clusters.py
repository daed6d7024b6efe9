"""Whether clusters make a run what it is, or how it came to them.

`python -m benchmarks.given_clusters RUN [--rounds N]` trains the models of a run once more, with
the clusters that it ended with from the first round, and shows both courses of accuracy.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

import umbel
from umbel.algorithms import FixedClusters
from umbel.data.sources import Sources
from umbel.runs.result import Result


def courses(result: Result, rounds: int) -> Iterator[tuple[int, float, float]]:
    """A round, the run's accuracy after it, and that with its last clusters from the beginning."""
    usual: Any = result.experiment.algorithm
    known = FixedClusters(tuple(result.clusters.values()), usual.local)
    given = replace(result.experiment, algorithm=known, rounds=rounds)
    for record, (_, other) in zip(
        result.records, given.open(Sources.default()).rounds(rounds), strict=False
    ):
        if record.accuracy is not None and other.accuracy is not None:
            yield record.round + 1, record.accuracy, other.accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--rounds", type=int, default=70)
    options = parser.parse_args()
    done = []
    for number, found, given in courses(umbel.load(options.run), options.rounds):
        done.append((found, given))
        click.echo(f"round {number}: {100 * found:.1f}, clusters given {100 * given:.1f}")
    late = done[len(done) // 2 :]
    means = (100 * sum(each) / len(late) for each in zip(*late, strict=True))
    click.echo("mean of the later half: {:.1f}, clusters given {:.1f}".format(*means))


if __name__ == "__main__":
    main()
