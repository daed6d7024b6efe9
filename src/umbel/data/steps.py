"""Examples that clients get step by step."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from umbel.checks import check
from umbel.data.given import listed

Pooled = dict[str, tuple[Tensor, Tensor]]


def pooled_steps(
    steps: Iterable[Any], names: Sequence[str] | None
) -> tuple[Pooled, NDArray[np.int64]]:
    """Return each client's examples of all steps, one after another, and their numbers (M, T)."""
    found: list[Mapping[str, Any]] = []
    for step in steps:
        clients, called = listed(step, names)
        found.append(dict(zip(called, clients, strict=True)))
    expected = "two or more: the last one is for the test alone"
    check(len(found) >= 2, "steps", len(found), expected)
    everyone = dict.fromkeys(name for step in found for name in step)
    sizes = np.zeros((len(everyone), len(found)), dtype=np.int64)
    pooled: Pooled = {}
    for place, name in enumerate(everyone):
        parts = {n: step[name] for n, step in enumerate(found) if name in step}
        for n, (_, y) in parts.items():
            sizes[place, n] = len(y)
        x, y = (torch.cat([_tensor(part[side]) for part in parts.values()]) for side in (0, 1))
        pooled[name] = x, y
    return pooled, sizes


def as_concepts(given: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.int64]:
    """Return concepts (M, T) as whole numbers. Raises `UsageError` if they are not."""
    concepts = np.asarray(given)
    expected = f"{shape}, a row for each client, a column for each step"
    check(concepts.shape == shape, "concepts: shape", concepts.shape, expected)
    whole = np.issubdtype(concepts.dtype, np.integer)
    check(whole, "concepts", str(concepts.dtype), "whole numbers")
    return concepts.astype(np.int64)


def _tensor(values: Any) -> Tensor:
    return values if isinstance(values, Tensor) else torch.as_tensor(np.asarray(values))
