"""Halves of a client are alike by chance alone where clients do not differ."""

from __future__ import annotations

import numpy as np
import pytest

from umbel.advice.examples import Floats, Ints
from umbel.advice.split_half_test import (
    ALPHA,
    Chance,
    Halves,
    by_chance,
    directions,
    halves_of,
    nearness,
    whitened,
)
from umbel.advice.structure import FEWEST_EXAMPLES

CLIENTS, EXAMPLES = 24, 20


def drawn(apart: float, seed: int, width: int = 6) -> tuple[Floats, Ints, Ints, int]:
    """Clients whose means lie this far apart in one direction, with noise of variance 1."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(CLIENTS), EXAMPLES)
    values = rng.normal(size=(len(owner), width))
    values[:, 0] += apart * rng.normal(size=CLIENTS)[owner]
    return values, owner, np.tile([0, 1], len(owner) // 2), CLIENTS


def halves(apart: float, seed: int, width: int = 6) -> Halves:
    return halves_of(*drawn(apart, seed, width))


def two_groups(clients: int, examples: int, apart: float, seed: int) -> Chance:
    """p-values where every other client's mean is this far from those of the others."""
    rng = np.random.default_rng(seed)
    owner = np.repeat(np.arange(clients), examples)
    values = rng.normal(size=(len(owner), 3))
    values[:, 0] += apart * (owner % 2)
    return by_chance(values, owner, np.arange(len(owner)) % 2, clients, rng)


def test_means_of_halves_by_hand() -> None:
    values = np.array([[1.0], [3.0], [5.0], [7.0]])
    found = halves_of(values, np.array([0, 0, 0, 1]), np.array([0, 1, 0, 1]), 2)
    assert found.counts.tolist() == [[2, 0], [1, 1]]
    assert found.means[:, 0, 0].tolist() == [3.0, 3.0]
    assert found.means[1, 1, 0] == 7.0


def test_scaled_deviations_have_the_variance_of_one_example() -> None:
    scaled = halves(0.0, 1, width=50).scaled()
    assert scaled.var() == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("tail", ["normal", "rare"])
def test_p_values_are_uniform_where_clients_do_not_differ(tail: str) -> None:
    found = []
    for seed in range(60):
        rng = np.random.default_rng(seed)
        owner = np.repeat(np.arange(6), [4, 4, 5, 6, 10, 60])
        values = rng.normal(size=(len(owner), 3))
        if tail == "rare":
            values = (values > 1.8).astype(float)
        found.append(by_chance(values, owner, np.arange(len(owner)) % 2, 6, rng, 39))
    for name in ("alike", "strongest"):
        small = np.mean([getattr(each, name) <= 0.1 for each in found])
        assert small == pytest.approx(0.1, abs=0.1)


def test_clients_that_differ_are_found() -> None:
    found = by_chance(*drawn(1.0, 0), np.random.default_rng(0))
    assert max(found.alike, found.strongest) <= ALPHA
    assert nearness(halves(3.0, 0)) > 0.8
    assert nearness(halves(0.0, 0)) == pytest.approx(0.5, abs=0.1)


def test_nearness_by_hand() -> None:
    means = np.array([[[0.0], [2.0], [6.0]], [[1.0], [4.0], [4.0]]])
    # Distances: 1 4 4; 1 2 2; 5 2 2. A client's other half is nearer than 3 of 6, and ties twice.
    found = nearness(Halves(means=means, counts=np.ones((2, 3), dtype=np.int64)))
    assert found == (3 + 0.5 * 2) / 6
    assert nearness(Halves(means=means[:, :1], counts=np.ones((2, 1), dtype=np.int64))) == 0.5


@pytest.mark.parametrize("clients", [2, 6])
def test_few_clients_that_differ_are_found_by_their_examples(clients: int) -> None:
    found = two_groups(clients, 100, apart=3.0, seed=clients)
    assert max(found.alike, found.strongest) <= ALPHA


def test_as_few_examples_as_are_compared_can_show_that_clients_differ() -> None:
    clients = 3
    found = two_groups(clients, FEWEST_EXAMPLES // clients, apart=50.0, seed=0)
    assert found.alike <= 0.05


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
