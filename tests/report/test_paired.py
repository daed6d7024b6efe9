"""Whether a difference is more than chance, against exact numbers and in simulated runs."""

from __future__ import annotations

from math import inf

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from umbel.report.paired import Gain, Interval, interval


def gain(client: str, seed: int, value: float) -> Gain:
    return Gain(client=client, seed=seed, value=value, now=0, before=0)


def gains(table: NDArray[np.float64], shared: bool = True) -> list[Gain]:
    """The gains of values (seeds, clients); clients of other seeds are the same ones or others."""
    return [
        gain(str(client) if shared else f"{seed}/{client}", seed, float(value))
        for (seed, client), value in np.ndenumerate(table)
    ]


def test_of_one_seed_it_is_the_interval_of_a_paired_t_test() -> None:
    values = np.random.default_rng(0).normal(0.1, 0.2, (1, 12))
    found = interval(gains(values))
    expected = stats.ttest_1samp(values[0], 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))
    assert (found.seeds, found.pairs) == (1, 12)


def test_where_seeds_differ_most_it_is_that_of_their_means() -> None:
    values = np.array([[0.1], [0.5], [0.3]]) + np.random.default_rng(0).normal(0, 0.01, (3, 8))
    found = interval(gains(values, shared=False))
    expected = stats.ttest_1samp(values.mean(1), 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_seeds_that_agree_by_chance_do_not_hide_what_clients_vary() -> None:
    values = np.array([[0.5, -0.3, 0.1, 0.1], [-0.3, 0.5, 0.1, 0.1]])
    found = interval(gains(values, shared=False))
    assert found.mean == pytest.approx(0.1)
    assert not found.sure


def test_each_seed_counts_alike_however_many_clients_it_has() -> None:
    found = interval([*gains(np.full((1, 6), 0.3)), gain("a", 7, 0.1)])
    assert found.mean == pytest.approx(0.2)


def test_too_few_pairs_have_no_interval_and_equal_ones_are_no_gain() -> None:
    few = interval(gains(np.full((1, 5), 0.5)))
    assert few == Interval(mean=few.mean, low=-inf, high=inf, seeds=1, pairs=5)
    assert not few.known
    assert not interval(gains(np.zeros((3, 5)))).sure
    assert interval(gains(np.full((2, 4), 0.1))).sure


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("seeds", "between_seeds"), [(1, 0.0), (3, 0.0), (3, 0.03)])
def test_methods_that_are_equal_are_rarely_told_apart(
    seeds: int, between_seeds: float, shared: bool
) -> None:
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(300):
        lasting = rng.normal(0, 0.05, (1 if shared else seeds, 10))
        values = rng.normal(0, between_seeds, (seeds, 1)) + lasting
        alarms += interval(gains(values + rng.normal(0, 0.05, (seeds, 10)), shared)).sure
    assert alarms <= 0.09 * 300


def test_methods_that_differ_are_told_apart() -> None:
    rng = np.random.default_rng(2)
    found = [interval(gains(rng.normal(0.1, 0.05, (3, 20)))).sure for _ in range(100)]
    assert sum(found) > 95
