"""What clients are compared by does not come from rounding errors."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

import umbel
from umbel.advice.descriptors import descriptors
from umbel.advice.examples import pooled

SEED = 0


def described(x: NDArray[Any], y: NDArray[Any]) -> dict[str, int]:
    """Kind of difference -> how many numbers describe an example of two clients."""
    half = len(x) // 2
    pairs = [(x[:half], y[:half]), (x[half:], y[half:])]
    found = pooled(umbel.Federation.from_arrays(pairs), SEED)
    return {kind: values.shape[1] for kind, values in descriptors(found, SEED).items()}


def test_inputs_that_depend_on_others_add_no_number() -> None:
    rng = np.random.default_rng(SEED)
    numbers, category = rng.normal(size=(2000, 2)), np.eye(3)[rng.integers(0, 3, 2000)]
    y = rng.integers(0, 2, 2000)
    whole = np.hstack([numbers, category])  # in which the indicators add up to 1
    assert described(whole, y) == described(whole[:, :4], y)
    doubled = np.hstack([numbers, numbers.sum(1, keepdims=True)]).astype(np.float32)
    assert described(doubled, y) == described(numbers, y)


def test_inputs_of_small_units_count_beside_those_of_large_ones() -> None:
    rng = np.random.default_rng(SEED)
    numbers, y = rng.normal(size=(2000, 3)), rng.integers(0, 2, 2000)
    assert described(numbers * [1e8, 1.0, 1.0], y) == described(numbers, y)
