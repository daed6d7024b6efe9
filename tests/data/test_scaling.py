"""Means and deviations are the same whether values are pooled or clients send sums."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.preprocessing import StandardScaler

from umbel.data.scaling import Scale, federated, pooled


def shards() -> list[np.ndarray]:
    """Clients of different sizes; one column has a large mean, some values are missing."""
    rng = np.random.default_rng(0)
    clients = [rng.normal([3.0, 1e9, -2.0], [2.0, 5.0, 0.1], (n, 3)) for n in (4, 1, 30)]
    clients[0][1, 0] = np.nan
    clients[1][0, 2] = np.nan  # this client has no value of it at all
    return clients


@pytest.mark.parametrize("federation", [False, True])
def test_the_scale_is_scikit_learns(federation: bool) -> None:
    clients = shards()
    found = federated(clients) if federation else pooled(np.concatenate(clients))
    expected = StandardScaler().fit(np.concatenate(clients))
    np.testing.assert_allclose(found.mean, expected.mean_, rtol=1e-9)
    np.testing.assert_allclose(found.deviation, expected.scale_, rtol=1e-6)


@pytest.mark.parametrize("federation", [False, True])
def test_a_constant_column_is_only_shifted_and_an_empty_one_has_no_mean(federation: bool) -> None:
    clients = [np.array([[0.1, np.nan]] * n) for n in (3, 4)]
    found = federated(clients) if federation else pooled(np.concatenate(clients))
    assert found.deviation.tolist() == [1.0, 1.0]
    assert found.mean[0] == pytest.approx(0.1)
    assert np.isnan(found.mean[1])


@pytest.mark.parametrize("federation", [False, True])
@pytest.mark.parametrize("size", [1e30, 1e200, 1e305])
def test_columns_of_any_size_keep_their_differences(federation: bool, size: float) -> None:
    numbers = np.random.default_rng(0).normal(size=(20, 2))
    values = numbers * [size, 1.0]  # beside a column of common size
    found = federated([values[:5], values[5:]]) if federation else pooled(values)
    np.testing.assert_allclose(found(values), StandardScaler().fit_transform(numbers), rtol=1e-6)


@pytest.mark.parametrize("federation", [False, True])
def test_numbers_far_from_zero_are_scaled_and_a_constant_of_many_clients_is_not(
    federation: bool,
) -> None:
    rng = np.random.default_rng(0)
    stamps = 1e15 + rng.integers(0, 1000, size=3000)  # as of identifiers, or of times in seconds
    values = np.stack([stamps, np.full(3000, 0.1), np.full(3000, 1e15 / 3)], axis=1)
    found = federated(np.split(values, 1000)) if federation else pooled(values)
    scaled = found(values)
    assert scaled[:, 0].std() == pytest.approx(1, rel=1e-3)
    assert found.deviation[1:].tolist() == [1.0, 1.0]


def test_missing_values_become_the_mean() -> None:
    scale = Scale(np.array([2.0]), np.array([4.0]))
    assert scale(np.array([[2.0], [np.nan], [10.0]])).tolist() == [[0.0], [0.0], [2.0]]
