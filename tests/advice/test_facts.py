"""What is said of the examples before anything is compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

import umbel
from umbel.advice.facts import Facts, facts


def told(seed: int, shift: float, sizes: Sequence[int], test_fraction: float = 0.2) -> Facts:
    """Facts of clients that draw from one distribution; inputs of the test are then shifted."""
    rng = np.random.default_rng(seed)
    train = [(rng.normal(size=(n, 5)), rng.integers(0, 2, n)) for n in sizes]
    few = [max(1, round(test_fraction * n)) for n in sizes]
    test = [(rng.normal(size=(n, 5)) + shift, rng.integers(0, 2, n)) for n in few]
    given = test if test_fraction else None
    federation = umbel.Federation.from_arrays(
        train, given, num_classes=2, test_fraction=test_fraction
    )
    return facts(federation, seed)


def test_few_test_examples_of_the_same_distribution_are_not_said_to_drift() -> None:
    found = [told(seed, 0.0, [16] * 8) for seed in range(20)]
    assert max(each.drift for each in found) > 0.6
    assert not any(each.drifts for each in found)


def test_inputs_that_are_shifted_in_the_test_are_said_to_drift() -> None:
    assert told(0, 2.0, [20] * 8).drifts


@pytest.mark.parametrize("sizes", [[30] * 4, [1] * 30])
def test_nothing_drifts_where_there_is_no_test(sizes: list[int]) -> None:
    found = told(0, 0.0, sizes, test_fraction=0.0)
    assert (found.test, found.drift) == (0, 0.5)
    assert not found.drifts


def test_clients_that_differ_are_no_drift_where_only_some_have_a_test() -> None:
    rng = np.random.default_rng(0)

    def some(client: int, count: int, shift: float = 0.0) -> Any:
        x = rng.normal(size=(count, 6)) + 3 * (client % 2) + shift
        return x.astype(np.float32), np.arange(count) % 2

    train = [some(client, 60) for client in range(10)]
    test = [some(client, 30 * (client % 2)) for client in range(10)]
    assert not facts(umbel.Federation.from_arrays(train, test, num_classes=2), 0).drifts
    moved = [some(client, 30 * (client % 2), shift=2.0) for client in range(10)]
    assert facts(umbel.Federation.from_arrays(train, moved, num_classes=2), 0).drifts
