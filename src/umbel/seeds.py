"""The seeds of all random numbers of a run: (run seed, stream, round, client) -> a seed.

There is no global generator. Streams are kept apart so that two methods compared under one seed
see the same data split, the same cohorts, the same initial model and the same mini-batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import accumulate, pairwise, permutations, repeat

import numpy as np
from numpy.random.bit_generator import ISeedSequence
from numpy.typing import NDArray

from umbel.summary import in_short

MANY = 16
"""Number of generators from which on it takes less time to seed them together."""


class Stream(IntEnum):
    """Purpose of a random number. Append only: the order is part of every published result."""

    DATA = 0  # which examples each client holds, and how the groups differ
    MODEL = 1  # initial models
    COHORT = 2  # which clients take part in a round
    CLIENT = 3  # what a client draws while it works: mini-batches, dropout
    CLUSTERING = 4  # starts of k-means and k-medoids
    FAULT = 5  # simulated faults
    SETUP = 6  # what a method draws before the first round
    NOISE = 7  # what is added to updates for privacy, in a simulation
    VALIDATION = 8  # which of a client's training examples are set apart for validation
    ADVICE = 9  # how examples are divided into halves at random, and how the halves are paired
    MEMBERSHIP = 10  # who is there at first, and who comes and leaves before a round
    ATTACK = 11  # which clients attack in a simulation, and what they draw


def seed_of(seed: int, stream: Stream, *more: int) -> int:
    """One 63-bit seed; `more` is the round, the number of a model, ...

    Missing numbers and zeros at the end give the same seed, so that a stream that is used without a
    number counts its other uses from 1.
    """
    return int(_words(seed, stream, more, 1)[0])


def generator(seed: int, stream: Stream, *more: int) -> np.random.Generator:
    """A new generator for this stream of this run seed."""
    return np.random.default_rng(seed_of(seed, stream, *more))


def client_seeds(seed: int, stream: Stream, round_: int, clients: NDArray[np.int64]) -> list[int]:
    """One seed for each client; it does not depend on which other clients are asked."""
    # The n-th word of a seed sequence does not depend on how many words are taken.
    words = _words(seed, stream, (round_,), int(clients.max(initial=-1)) + 1)
    return [int(word) for word in words[clients]]


def generators(seeds: Sequence[int]) -> Iterator[np.random.Generator]:
    """Yield `np.random.default_rng(seed)` for each of these seeds, which are below 2^64.

    NumPy takes longer to seed a generator than to draw a client's mini-batches from it. Many are
    therefore seeded together, as `np.random.SeedSequence` does it, whose results NumPy guarantees.
    """
    if len(seeds) < MANY:
        yield from map(np.random.default_rng, seeds)
        return
    low, high = np.array(seeds, dtype="<u8").view("<u4").reshape(-1, 2).T
    # Each word of the pool is hashed, then mixed into all others.
    constants = _constants(0x43B0D7E5, 0x931E8875)
    pool = [_hashed(words, constants) for words in (low, high, 0 * low, 0 * low)]
    for source, into in permutations(range(4), 2):
        left, right = np.uint32(0xCA01F9DD), np.uint32(0x4973F715)
        mixed = left * pool[into] - right * _hashed(pool[source], constants)
        pool[into] = mixed ^ mixed >> np.uint32(16)
    constants = _constants(0x8B51F9DD, 0x58F38DED)
    states = np.stack([_hashed(pool[n % 4], constants) for n in range(8)], axis=1).view("<u8")
    for state in states:
        yield np.random.Generator(np.random.PCG64(_Hashed(state)))  # type: ignore[arg-type]


def _constants(first: int, factor: int) -> Iterator[tuple[np.uint32, np.uint32]]:
    """The constants of one hash after another: each is the one before times the factor."""
    powers = accumulate(repeat(factor), lambda c, f: c * f % 2**32, initial=first)
    return pairwise(map(np.uint32, powers))


def _hashed(
    words: NDArray[np.uint32], constants: Iterator[tuple[np.uint32, np.uint32]]
) -> NDArray[np.uint32]:
    before, after = next(constants)
    words = (words ^ before) * after
    return words ^ words >> np.uint32(16)


@dataclass(frozen=True)
class _Hashed(ISeedSequence):
    """The hashed words of a seed, for a generator that is to start with them."""

    state: NDArray[np.uint64]

    __repr__ = in_short

    def generate_state(self, n_words: int, dtype: object = np.uint64) -> NDArray[np.uint64]:  # noqa: ARG002
        return self.state


def _words(seed: int, stream: Stream, more: tuple[int, ...], count: int) -> NDArray[np.uint64]:
    sequence = np.random.SeedSequence((seed, int(stream), *more))
    words = sequence.generate_state(count, np.uint64)
    return words >> np.uint64(1)  # 63 bits: every generator and every wire format takes them
