from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from umbel.checks import UsageError
from umbel.data.partition import apportioned, client_sizes, deal_alike, draw

ALL = np.ones((5, 3), dtype=bool)


def one_pool(clients: int, examples: int) -> tuple[np.ndarray, np.ndarray]:
    """Clients that may hold the only label there is, and the examples' labels."""
    return np.ones((clients, 1), dtype=bool), np.zeros(examples, dtype=np.int64)


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


@settings(max_examples=30)
@given(
    clients=st.integers(1, 200),
    shares=st.lists(st.floats(0.1, 50), min_size=1, max_size=8),
)
def test_groups_get_their_share_of_the_clients_to_within_one(
    clients: int, shares: list[float]
) -> None:
    counts = apportioned(clients, shares)
    assert sum(counts) == clients
    for count, share in zip(counts, shares, strict=True):
        assert abs(count - clients * share / sum(shares)) < 1


def test_the_groups_of_rotated_mnist_have_10_to_40_clients() -> None:
    assert apportioned(100, (10, 20, 30, 40)).tolist() == [10, 20, 30, 40]


def test_sizes_are_equal_fixed_or_drawn_from_both_ends_of_a_range() -> None:
    assert client_sizes((), *one_pool(3, 100), rng()).tolist() == [33, 33, 33]
    assert client_sizes((7,), *one_pool(3, 100), rng()).tolist() == [7, 7, 7]
    sizes = client_sizes((2, 5), *one_pool(300, 10**5), rng())
    assert set(sizes.tolist()) == {2, 3, 4, 5}


def test_sizes_drawn_from_a_range_fit_what_there_is() -> None:
    for seed in range(50):
        assert client_sizes((50, 120), *one_pool(20, 1797), rng(seed)).sum() <= 1797


def test_sizes_fit_those_who_share_labels_and_are_the_first_drawn_that_do() -> None:
    y = np.repeat([0, 1, 2], [500, 20, 100])
    allowed = np.array([[False, True, False]] * 2 + [[False, False, True]] * 2)
    drawn = rng()
    while True:
        expected = drawn.integers(5, 61, 4)
        if expected[:2].sum() <= 20 and expected[2:].sum() <= 100:
            break
    assert client_sizes((5, 60), allowed, y, rng()).tolist() == expected.tolist()
    assert client_sizes((), allowed[:2], y, rng()).tolist() == [10, 10]  # of 20, not of 620


def test_equal_sizes_are_those_that_the_ones_who_share_fewest_can_have() -> None:
    y = np.repeat([0, 1], [1000, 101])
    allowed = np.array([[True, False]] * 2 + [[False, True]] * 2)
    assert client_sizes((), allowed, y, rng()).tolist() == [50] * 4
    with pytest.raises(UsageError, match="clients: 2 is not few enough: they share 1 examples"):
        client_sizes((), allowed, y[:1001], rng())


@pytest.mark.parametrize("examples", [(60,), (60, 70)])
def test_sizes_that_can_not_fit_are_refused(examples: tuple[int, ...]) -> None:
    with pytest.raises(UsageError, match=r"examples: \d+ is not few enough: 2 clients share 100"):
        client_sizes(examples, *one_pool(2, 100), rng())
    with pytest.raises(UsageError, match=r"examples: \[1, 10000\] for each of 50 clients"):
        client_sizes((1, 10_000), *one_pool(50, 100), rng())
    with pytest.raises(UsageError, match="examples: 0 is not 1 or more"):
        client_sizes((0,), *one_pool(2, 100), rng())
    with pytest.raises(UsageError, match="clients: 101 is not few enough: they share 100 examples"):
        client_sizes((), *one_pool(101, 100), rng())


@settings(max_examples=30)
@given(seed=st.integers(0, 500), alpha=st.none() | st.floats(0.05, 10))
def test_nobody_shares_an_example_and_everybody_has_enough(seed: int, alpha: float | None) -> None:
    y = rng(seed).integers(0, 3, 100)
    sizes = np.array([10, 30, 5, 25, 20])
    rows = draw(y, sizes, ALL, rng(seed), alpha)
    assert [len(mine) for mine in rows] == sizes.tolist()
    together = np.concatenate(rows)
    assert len(set(together.tolist())) == len(together)


def test_clients_hold_allowed_labels_only() -> None:
    y = np.arange(90) % 3
    allowed = np.array([[True, False, False], [False, True, True]])
    first, second = draw(y, np.array([30, 40]), allowed, rng())
    assert set(y[first]) == {0}
    assert set(y[second]) == {1, 2}
    with pytest.raises(UsageError, match=r"client 0 should get 31, but only 30 examples .* left"):
        draw(y, np.array([31, 40]), allowed, rng())


def test_without_skew_the_last_client_has_as_even_a_mix_as_the_first() -> None:
    y = np.arange(1000) % 10
    allowed = np.ones((10, 10), dtype=bool)
    last = [
        np.bincount(y[draw(y, np.full(10, 100), allowed, rng(seed))[-1]], minlength=10)
        for seed in range(40)
    ]
    # Dealt from a shuffled deck: 10 of each label, with the deck's standard deviation of 2.7.
    assert np.mean(last) == 10
    assert np.std(last) == pytest.approx(2.85, abs=0.4)


def test_rows_are_dealt_in_the_label_mix_that_clients_have() -> None:
    pools = [np.arange(0, 30), np.arange(100, 170), np.arange(200, 240)]
    counts = np.array([[20, 20, 0], [40, 0, 30], [0, 100, 10]])
    rows = deal_alike(pools, counts)
    # The 60 of the first label are answered by 30: half as many of every label.
    mixes = [np.bincount(mine // 100, minlength=3).tolist() for mine in rows]
    assert mixes == [[10, 10, 0], [20, 0, 15], [0, 50, 5]]
    together = np.concatenate(rows)
    assert len(set(together.tolist())) == len(together)


def test_a_small_alpha_makes_clients_differ_and_a_large_one_does_not() -> None:
    y = np.arange(3000) % 3

    def spread(alpha: float) -> float:
        rows = draw(y, np.full(5, 100), ALL, rng(), alpha)
        return float(np.std([np.bincount(y[mine], minlength=3) for mine in rows]))

    assert spread(0.1) > 3 * spread(100.0)
