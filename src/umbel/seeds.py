"""The seeds of all random numbers of a run: (run seed, stream, round, client) -> a seed.

There is no global generator. Streams are kept apart so that two methods compared under one seed
see the same data split, the same cohorts, the same initial model and the same mini-batches.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
from numpy.typing import NDArray


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


def _words(seed: int, stream: Stream, more: tuple[int, ...], count: int) -> NDArray[np.uint64]:
    sequence = np.random.SeedSequence((seed, int(stream), *more))
    words = sequence.generate_state(count, np.uint64)
    return words >> np.uint64(1)  # 63 bits: every generator and every wire format takes them
