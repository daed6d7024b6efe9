"""Comparison of states, value by value."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from umbel.algorithms.base import State
from umbel.testing.sentences import saying


def assert_same_state(found: Any, expected: Any, tolerance: float = 0.0) -> None:
    """Raise `AssertionError` unless two states hold the same numbers, to this tolerance."""
    for member in fields(expected):
        with saying(f"{member.name} differs"):
            _assert_same(getattr(found, member.name), getattr(expected, member.name), tolerance)


def _extent(value: Any) -> str:
    """A tuple in words, by how long it is; anything else by its type."""
    kind = type(value).__name__
    return f"a {kind} of {len(value)}" if isinstance(value, tuple) else f"a {kind}"


def _assert_same(a: Any, b: Any, tolerance: float) -> None:
    if isinstance(b, Tensor):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance, equal_nan=True)
    elif isinstance(b, State):
        assert_same_state(a, b, tolerance)
    elif isinstance(b, tuple):
        alike = isinstance(a, tuple) and len(a) == len(b)
        assert alike, f"{_extent(a)} instead of {_extent(b)}"
        for one, other in zip(a, b, strict=True):
            _assert_same(one, other, tolerance)
    elif isinstance(b, float):
        np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)
    else:
        assert a == b, f"{a} instead of {b}"
