"""What a model is trained for and judged by, example by example."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy


@dataclass(frozen=True)
class Objective:
    """Two functions of a model's outputs (B, ...) and the examples' y (B, ...)."""

    losses: Callable[[Tensor, Tensor], Tensor]  # -> (B,)
    correct: Callable[[Tensor, Tensor], Tensor]  # -> (B,), 1 where the model is right


def _cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    return _each(cross_entropy(outputs, y, reduction="none"))


def _right_class(outputs: Tensor, y: Tensor) -> Tensor:
    return _each((outputs.argmax(1) == y).to(outputs.dtype))


def _squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    return _each((outputs - y) ** 2)


def _unknown(outputs: Tensor, y: Tensor) -> Tensor:  # noqa: ARG001
    return outputs.new_full((len(outputs),), torch.nan)


def _each(values: Tensor) -> Tensor:
    """One value per example: the mean over whatever an example has many of."""
    return values.flatten(1).mean(1) if values.dim() > 1 else values


CLASSIFICATION = Objective(_cross_entropy, _right_class)
"""Cross-entropy of logits (B, C, ...) against labels (B, ...), scored by accuracy."""

REGRESSION = Objective(_squared_error, _unknown)
"""Mean squared error of outputs and targets (B, ...); regression has no accuracy."""
