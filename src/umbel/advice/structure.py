"""Differences of clients' examples before any training, and the groups that follow from them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from umbel.advice.descriptors import descriptors
from umbel.advice.examples import Floats, Ints, Pooled
from umbel.advice.grouping import Grouping, best, groupings
from umbel.advice.split_half_test import (
    ALPHA,
    by_chance,
    directions,
    halves_of,
    nearness,
    whitened,
)
from umbel.seeds import Stream, generator
from umbel.summary import in_short

FEWEST_EXAMPLES = 12
"""Fewest examples for a comparison: fewer can be reassigned to clients in too few ways."""


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A difference of clients in one respect: inputs, labels, or labels given inputs."""

    kind: str  #: "inputs", "labels" or "labels given inputs"
    p_value: float  #: p-value: probability of such a difference if clients do not differ
    #: how often a client's other half is nearer than another client's half; 0.5 by chance
    nearness: float
    dimensions: int  #: directions in which clients differ beyond noise

    @property
    def found(self) -> bool:
        """True if the difference is more than chance."""
        return self.p_value <= ALPHA


@dataclass(frozen=True, kw_only=True)
class Structure:
    """The differences of clients, and groups of clients that follow from these."""

    differences: tuple[Difference, ...]  #: one for each kind that was looked at
    groupings: tuple[Ints, ...]  #: (M,) clusters of all clients, for 1, 2, ... clusters
    num_groups: int  #: how many groups the descriptors show; 1: none

    __repr__ = in_short

    @property
    def found(self) -> bool:
        """True if clients differ in any respect."""
        return any(each.found for each in self.differences)


def structure(examples: Pooled, num_clients: int, seed: int) -> Structure:
    """Compare the clients (M of them, of which `examples` has those with enough)."""
    alone = (np.zeros(num_clients, dtype=np.int64),)
    if examples.num_clients < 2 or len(examples.owner) < FEWEST_EXAMPLES:
        return Structure(differences=(), groupings=alone, num_groups=1)
    rng = generator(seed, Stream.ADVICE, 1)
    places = examples.owner, examples.half, examples.num_clients
    differences, parts = [], []
    for kind, values in descriptors(examples, seed).items():
        if values.shape[1]:
            white = whitened(values, examples.owner, examples.num_clients)
            halves, chance = halves_of(white, *places), by_chance(values, *places, rng)
            part = white @ directions(halves, rng)  # (N, Q) the numbers in which clients differ
            part = part if chance.strongest <= ALPHA else part[:, :0]
            near, width = nearness(halves), part.shape[1]
            said = Difference(kind=kind, p_value=chance.alike, nearness=near, dimensions=width)
            differences.append(said)
            parts += [part] if said.found and width else []
    found = _groupings(parts, examples, rng, seed)
    if not found:
        return Structure(differences=tuple(differences), groupings=alone, num_groups=1)
    return Structure(
        differences=tuple(differences),
        groupings=tuple(_of_all(each.labels, examples.clients, num_clients) for each in found),
        num_groups=best(found).num_groups,
    )


def _groupings(
    parts: list[Floats],
    examples: Pooled,
    rng: np.random.Generator,
    seed: int,
) -> tuple[Grouping, ...]:
    """Groupings by all respects in which clients differ; empty if there is none."""
    if not parts:
        return ()
    white = whitened(np.hstack(parts), examples.owner, examples.num_clients)
    halves = halves_of(white, examples.owner, examples.half, examples.num_clients)
    axes = directions(halves, rng)
    return groupings(halves.seen_from(axes), seed) if axes.shape[1] else ()


def _of_all(labels: Ints, clients: Ints, num_clients: int) -> Ints:
    """Clusters of all clients; those that were not compared are in the largest."""
    found = np.full(num_clients, int(np.bincount(labels).argmax()), dtype=np.int64)
    found[clients] = labels
    return found
