"""Whether a difference is more than chance, against exact numbers and in simulated runs."""

from __future__ import annotations

from math import inf, sqrt

import numpy as np
import pytest
from benchmarks.coverage import WORLDS, World, rates
from numpy.typing import NDArray
from scipy import stats

from umbel.result.statistics.crossed import Crossed, spread_of
from umbel.result.statistics.paired import Gain, Interval, by_t, interval
from umbel.result.statistics.resampling import by_bootstrap

SAMPLES = 299
"""Samples of a bootstrap where many comparisons are simulated, so that these are soon done."""


def gain(client: str, seed: int, value: float) -> Gain:
    return Gain(client=client, seed=seed, value=value, now=0, before=0)


def gains(table: NDArray[np.float64], shared: bool = True) -> list[Gain]:
    """The gains of values (seeds, clients); clients of other seeds are the same ones or others."""
    return [
        gain(str(client) if shared else f"{seed}/{client}", seed, float(value))
        for (seed, client), value in np.ndenumerate(table)
    ]


def test_of_one_seed_the_t_interval_is_that_of_a_paired_t_test() -> None:
    values = np.random.default_rng(0).normal(0.1, 0.2, (1, 12))
    found = by_t(table := Crossed(values, np.ones_like(values)), spread_of(table))
    expected = stats.ttest_1samp(values[0], 0)
    ends = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high))
    assert found.p_value == pytest.approx(expected.pvalue)


def test_the_bootstrap_of_one_seed_is_that_of_drawn_clients_worked_by_hand() -> None:
    values = np.random.default_rng(3).exponential(size=12)
    error = values.std(ddof=1) / sqrt(12)
    rng, distances = np.random.default_rng(1), []
    for _ in range(8_000):
        drawn = rng.choice(values, 12)
        least = max(drawn.std(ddof=1) / sqrt(12), 0.25 * error)
        distances.append((drawn.mean() - values.mean()) / least)
    low, high = np.quantile(distances, [0.025, 0.975])
    found = by_bootstrap(table := Crossed(values[None], np.ones((1, 12))), spread_of(table))
    expected = (values.mean() - high * error, values.mean() - low * error)
    assert (found.low, found.high) == pytest.approx(expected, rel=0.08)


def test_the_interval_is_the_wider_of_the_two_and_the_same_each_time() -> None:
    values = np.random.default_rng(4).exponential(size=(3, 12))
    whole = spread_of(table := Crossed(values, np.ones_like(values)))
    both = by_t(table, whole), by_bootstrap(table, whole)
    found = interval(gains(values))
    assert found == interval(gains(values))
    assert (found.low, found.high) == (min(e.low for e in both), max(e.high for e in both))
    assert found.p_value == max(e.p_value for e in both)
    assert (found.seeds, found.pairs) == (3, 36)


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


@pytest.mark.parametrize("one", [[0.4, 0.0] * 5, [0.2, 0.0, 0.1]])
def test_gains_that_cancel_over_seeds_and_clients_are_not_taken_for_equal(one: list[float]) -> None:
    values = np.array([one, 2 * np.mean(one) - np.array(one)])
    found = interval(gains(values))
    expected = stats.ttest_1samp(values.ravel(), 0)
    ends = expected.confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((ends.low, ends.high), rel=0.1)
    assert found.p_value == pytest.approx(max(expected.pvalue, 1e-12), rel=0.1)


def test_each_seed_counts_alike_however_many_clients_it_has() -> None:
    found = interval([*gains(np.full((1, 6), 0.3)), gain("a", 7, 0.1)])
    assert found.mean == pytest.approx(0.2)


def test_too_few_pairs_have_no_interval_and_equal_ones_are_no_gain() -> None:
    few = interval(gains(np.full((1, 5), 0.5)))
    assert few == Interval(mean=few.mean, low=-inf, high=inf, seeds=1, pairs=5)
    assert not few.known
    assert not interval(gains(np.zeros((3, 5)))).sure
    assert interval(gains(np.full((2, 4), 0.1))).sure


@pytest.mark.parametrize("seeds", [1, 2])
def test_equal_gains_are_as_sure_as_the_signs_of_so_many_clients(seeds: int) -> None:
    found = interval(gains(np.full((seeds, 6), 0.1)))
    assert (found.low, found.high) == (found.mean, found.mean)
    assert found.p_value == stats.binomtest(6, 6).pvalue == 1 / 32


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize(("seeds", "between_seeds"), [(1, 0.0), (3, 0.0), (3, 0.03)])
def test_methods_that_are_equal_are_rarely_told_apart(
    seeds: int, between_seeds: float, shared: bool
) -> None:
    rng = np.random.default_rng(1)
    alarms = 0
    for _ in range(200):
        lasting = rng.normal(0, 0.05, (1 if shared else seeds, 10))
        values = rng.normal(0, between_seeds, (seeds, 1)) + lasting
        values = values + rng.normal(0, 0.05, (seeds, 10))
        alarms += interval(gains(values, shared), SAMPLES).sure
    assert alarms <= 0.08 * 200


@pytest.mark.long
@pytest.mark.parametrize(
    "seeds", [1, 3, *(pytest.param(n, marks=pytest.mark.thorough) for n in (2, 5))]
)
def test_of_200_comparisons_without_a_difference_at_most_8_percent_exclude_zero(
    seeds: int,
) -> None:
    for rate in rates(WORLDS, [seeds], [20], 200, SAMPLES, others=False):
        assert rate.shares["umbel"] <= 0.08, rate


def test_a_bootstrap_alone_is_too_narrow_of_two_seeds_that_differ() -> None:
    (rate,) = rates([World(name="seeds", seeds=0.03)], [2], [50], 200, SAMPLES)
    assert rate.shares["bootstrap-t"] > 0.1
    assert rate.shares["percentiles"] > 0.1
    assert rate.shares["umbel"] <= 0.08


def test_methods_that_differ_are_told_apart() -> None:
    rng = np.random.default_rng(2)
    found = [interval(gains(rng.normal(0.1, 0.05, (3, 20))), SAMPLES).sure for _ in range(50)]
    assert sum(found) > 47
