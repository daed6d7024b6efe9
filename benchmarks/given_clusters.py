"""Whether a run's results depend on its final clusters, or on how it found them.

`python -m benchmarks.given_clusters RUN [--rounds N]` trains the models of a run once more, with
the clusters that it ended with from the first round, and shows both courses of accuracy. With
`--after R` it makes the first R rounds as they were, and the clusters stay what they are then.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

import umbel
from benchmarks.refusing import plainly
from umbel.algorithms import FixedClusters
from umbel.algorithms.base import State
from umbel.data.sources import Sources
from umbel.result.run import Result


def courses(result: Result, rounds: int, after: int = 0) -> Iterator[tuple[int, float, float]]:
    """A round, the run's accuracy after it, and that with clusters that stay as they are."""
    usual: Any = result.experiment.algorithm
    begun = reached(result, after) if after else None
    labels = tuple(result.clusters.values()) if begun is None else tuple(begun.labels.tolist())
    known = FixedClusters(labels, usual.local, usual.averaging)
    given = replace(result.experiment, algorithm=known, rounds=rounds)
    others = given.open(Sources.default()).rounds(rounds, begun, after)
    for record, (_, other) in zip(result.records[after:], others, strict=False):
        if record.accuracy is not None and other.accuracy is not None:
            yield record.round + 1, record.accuracy, other.accuracy


def reached(result: Result, rounds: int) -> State:
    """Models and clusters after this many rounds, computed again."""
    *_, (state, _) = result.experiment.open(Sources.default()).rounds(rounds)
    return State(state.models, state.labels)


@plainly()
def main(arguments: Sequence[str] | None = None) -> None:
    """Print both courses, and their means over the later half of the rounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path)
    parser.add_argument("--rounds", type=int, default=70)
    parser.add_argument("--after", type=int, default=0)
    options = parser.parse_args(arguments)
    result, done = umbel.load(options.run), []
    compared = min(options.rounds, len(result.records))
    if options.after >= compared:
        raise SystemExit(f"after: {options.after} is not below {compared}, the last round compared")
    for number, found, given in courses(result, options.rounds, options.after):
        done.append((found, given))
        click.echo(f"round {number}: {100 * found:.1f}, clusters given {100 * given:.1f}")
    if not done:
        raise SystemExit(f"no round up to {compared} is evaluated in both courses")
    late = done[len(done) // 2 :]
    means = (100 * sum(each) / len(late) for each in zip(*late, strict=True))
    click.echo("mean of the later half: {:.1f}, clusters given {:.1f}".format(*means))


if __name__ == "__main__":
    main()
