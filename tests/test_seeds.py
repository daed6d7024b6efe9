from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from umbel.seeds import MANY, Stream, client_seeds, generator, generators, seed_of

seeds = st.integers(0, 2**32)


def test_the_numbers_of_published_results_do_not_move() -> None:
    assert seed_of(0, Stream.MODEL, 0) == 2918264622725855778
    assert client_seeds(3, Stream.CLIENT, 2, np.array([0, 5])) == [
        3489899069719773320,
        704163481694322424,
    ]


@given(seed=seeds, round_=st.integers(0, 1000), clients=st.sets(st.integers(0, 50), min_size=1))
def test_a_clients_seed_does_not_depend_on_who_else_is_asked(
    seed: int, round_: int, clients: set[int]
) -> None:
    together = client_seeds(seed, Stream.CLIENT, round_, np.array(sorted(clients)))
    alone = [client_seeds(seed, Stream.CLIENT, round_, np.array([c]))[0] for c in sorted(clients)]
    assert together == alone


def test_streams_rounds_and_clients_have_seeds_of_their_own() -> None:
    everyone = np.arange(100)
    drawn = [
        seed
        for stream in Stream
        for round_ in range(5)
        for seed in client_seeds(0, stream, round_, everyone)
    ]
    assert len(set(drawn)) == len(drawn)
    assert all(0 <= seed < 2**63 for seed in drawn)


def test_generators_of_one_purpose_agree_and_of_two_differ() -> None:
    first, again = generator(1, Stream.DATA, 4).random(3), generator(1, Stream.DATA, 4).random(3)
    other = generator(1, Stream.COHORT, 4).random(3)
    assert first.tolist() == again.tolist()
    assert first.tolist() != other.tolist()


def test_no_number_and_the_number_0_are_one_seed() -> None:
    assert seed_of(5, Stream.DATA) == seed_of(5, Stream.DATA, 0) == seed_of(5, Stream.DATA, 0, 0)
    assert seed_of(5, Stream.DATA) != seed_of(5, Stream.DATA, 1)


def test_nobody_needs_no_seed() -> None:
    assert client_seeds(0, Stream.CLIENT, 0, np.array([], dtype=np.int64)) == []


@given(wide=st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=4 * MANY))
def test_generators_seeded_together_are_those_seeded_alone(wide: list[int]) -> None:
    every = [0, 1, 2**32 - 1, 2**32, 2**64 - 1, *wide]
    for seed, found in zip(every, generators(every), strict=True):
        expected = np.random.default_rng(seed)
        assert found.bit_generator.state == expected.bit_generator.state
        assert (found.permutation(9) == expected.permutation(9)).all()
