"""Halves of a client are alike by chance alone where clients do not differ."""

from __future__ import annotations

import numpy as np
import pytest

from umbel.advice.halves import (
    ALPHA,
    Halves,
    directions,
    halves_of,
    nearness,
    p_value,
    whitened,
)

CLIENTS, EXAMPLES = 24, 20


def halves(apart: float, seed: int, width: int = 6) -> Halves:
    """Clients whose means lie this far apart in one direction, with noise of variance 1."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(CLIENTS), EXAMPLES)
    values = rng.normal(size=(len(owner), width))
    values[:, 0] += apart * rng.normal(size=CLIENTS)[owner]
    half = np.tile([0, 1], len(owner) // 2)
    return halves_of(values, owner, half, CLIENTS)


def test_means_of_halves_by_hand() -> None:
    values = np.array([[1.0], [3.0], [5.0], [7.0]])
    found = halves_of(values, np.array([0, 0, 0, 1]), np.array([0, 1, 0, 1]), 2)
    assert found.counts.tolist() == [[2, 0], [1, 1]]
    assert found.means[:, 0, 0].tolist() == [3.0, 3.0]
    assert found.means[1, 1, 0] == 7.0


def test_scaled_deviations_have_the_variance_of_one_example() -> None:
    scaled = halves(0.0, 1, width=50).scaled()
    assert scaled.var() == pytest.approx(1.0, abs=0.1)


def test_p_values_are_uniform_where_clients_do_not_differ() -> None:
    found = [p_value(halves(0.0, seed), np.random.default_rng(seed)) for seed in range(100)]
    assert np.mean([p <= 0.1 for p in found]) == pytest.approx(0.1, abs=0.08)


def test_clients_that_differ_are_found() -> None:
    assert p_value(halves(1.0, 0), np.random.default_rng(0)) <= ALPHA
    assert nearness(halves(3.0, 0)) > 0.8
    assert nearness(halves(0.0, 0)) == pytest.approx(0.5, abs=0.1)


def test_one_direction_is_found_where_clients_differ_in_one() -> None:
    assert directions(halves(1.0, 0), np.random.default_rng(0)).shape == (6, 1)
    assert directions(halves(0.0, 0), np.random.default_rng(0)).shape == (6, 0)
    axis = directions(halves(2.0, 3), np.random.default_rng(0))[:, 0]
    assert abs(axis[0]) > 0.95


def test_whitened_numbers_have_the_noise_of_clients_as_their_unit() -> None:
    rng = np.random.default_rng(0)
    owner = np.repeat(np.arange(10), 100)
    noise = rng.normal(size=(1000, 2)) @ np.array([[5.0, 1.0], [0.0, 1.0]])
    white = whitened(noise + 100 * owner[:, None], owner, 10)
    within = white - np.stack([white[owner == c].mean(0) for c in range(10)])[owner]
    np.testing.assert_allclose(np.cov(within.T), np.eye(2), atol=0.1)
