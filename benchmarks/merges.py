"""FLACC's similarities and merges by round, for swapped labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from math import nan

import numpy as np
from numpy.typing import NDArray

from umbel.algorithms.flacc import FLACC, FLACCState
from umbel.data.scenarios.shifted import Shifted
from umbel.data.sources import Sources
from umbel.experiment.experiment import ExperimentSettings
from umbel.seeds import Stream, generator

Values = NDArray[np.float64]
Labels = NDArray[np.int64]
Measured = tuple[float, int]
"""A similarity, and the round in which it was measured."""


@dataclass(frozen=True)
class Spread:
    """The similarities of some pairs of clients."""

    mean: float = nan
    sd: float = nan
    largest: float = nan
    below: float = nan  # share of them and the pairs within groups in which the latter is larger

    @classmethod
    def of(cls, values: Values, within: Values) -> Spread:
        """Describe these pairs, and how many of those within groups are more alike."""
        if not len(values) or not len(within):
            return cls()
        below = float((within[:, None] > values).mean())
        return cls(float(values.mean()), float(values.std()), float(values.max()), below)


@dataclass(frozen=True)
class Mixing:
    """Two merged entities with clients of several groups."""

    groups: tuple[tuple[int, ...], tuple[int, ...]]
    smallest: float  # the smallest similarity known between them
    rounds: tuple[int, ...]  # when the similarities known between them were measured
    share_a_label: bool  # whether the same label is swapped in both


@dataclass(frozen=True)
class RoundSeen:
    """The similarities and merges of a round."""

    number: int
    within: Spread
    sharing: Spread  # between groups whose swapped pairs have a label in common
    apart: Spread  # between other groups
    tiny: Spread  # within groups, where a client's last mini-batch has one or two examples
    entities: int
    mixed: int  # entities with clients of several groups
    mixings: tuple[Mixing, ...] = ()
    accuracy: float | None = None  # mean over clients, where they were evaluated


def swapped_pairs(experiment: ExperimentSettings) -> tuple[tuple[int, ...], ...]:
    """The labels that each group of a scenario has swapped, under the experiment's seed."""
    rng, labels = generator(experiment.seed, Stream.DATA), np.arange(10)
    nothing = np.zeros((10, 1, 1, 1), dtype=np.float32)
    assert isinstance(experiment.scenario, Shifted)
    groups = experiment.scenario.shift.make(10, rng)
    tables = [group.transform(nothing, labels, rng)[1] for group in groups]
    return tuple(tuple(np.flatnonzero(table != labels).tolist()) for table in tables)


def rounds_seen(
    experiment: ExperimentSettings, count: int, sources: Sources
) -> Iterator[RoundSeen]:
    """Do the first rounds of an experiment with FLACC and swapped labels, and look at each."""
    run, method = experiment.open(sources), experiment.algorithm
    assert isinstance(method, FLACC)
    groups = run.federation.groups
    assert groups is not None
    pairs = swapped_pairs(experiment)
    shared = np.array([[bool(set(a) & set(b)) for b in pairs] for a in pairs])
    last = run.federation.train.sizes % int(method.local.batch_size)
    tiny = np.isin(last, (1, 2)) & (not method.local.drop_last)
    before, known = np.arange(run.federation.num_clients), dict[tuple[int, int], Measured]()
    for state, record in islice(run.rounds(experiment.rounds), count):
        assert isinstance(state, FLACCState)
        new, after = state.seen == record.round, state.labels.numpy()
        i, j = state.pairs[new].numpy().T
        values = state.similarity[new].numpy()
        measured = zip(i.tolist(), j.tolist(), values.tolist(), strict=True)
        known |= {(one, other): (value, record.round) for one, other, value in measured}
        oldest = record.round - method.memory - 1  # forgetting comes after merging
        known = {pair: what for pair, what in known.items() if what[1] >= oldest}
        same, common = groups[i] == groups[j], shared[groups[i], groups[j]]
        within = values[same]
        yield RoundSeen(
            record.round,
            within=Spread.of(within, within),
            sharing=Spread.of(values[~same & common], within),
            apart=Spread.of(values[~same & ~common], within),
            tiny=Spread.of(values[same & (tiny[i] | tiny[j])], within),
            entities=len(np.unique(after)),
            mixed=sum(len(np.unique(groups[after == name])) > 1 for name in np.unique(after)),
            mixings=tuple(mixings_of(before, after, groups, shared, known)),
            accuracy=record.accuracy,
        )
        before = after


def mixings_of(
    before: Labels,
    after: Labels,
    groups: Labels,
    shared: NDArray[np.bool_],
    known: Mapping[tuple[int, int], Measured],
) -> Iterator[Mixing]:
    """The merges of a round that brought clients of different groups together."""
    for gone in np.setdiff1d(before, after):
        one = before == gone
        other = before == after[one][0]
        here, there = np.unique(groups[one]), np.unique(groups[other])
        if len(np.union1d(here, there)) == max(len(here), len(there)):
            continue
        across = [it for (i, j), it in known.items() if one[i] & other[j] or one[j] & other[i]]
        yield Mixing(
            groups=(tuple(here.tolist()), tuple(there.tolist())),
            smallest=min((value for value, _ in across), default=nan),
            rounds=tuple(sorted({number for _, number in across})),
            share_a_label=bool(shared[np.ix_(here, there)].any()),
        )
