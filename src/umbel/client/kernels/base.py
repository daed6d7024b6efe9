"""The three functions that every kernel has."""

from __future__ import annotations

from typing import Protocol

from torch import Tensor

from umbel.client.batches import Batch, Shard
from umbel.client.descent import Rule


class Kernel(Protocol):
    """An implementation of outputs, gradients and updates; results differ only by rounding."""

    def outputs(self, theta: Tensor, x: Tensor) -> Tensor:
        """Outputs in evaluation mode: (B, ...)."""
        ...

    def gradient(
        self, theta: Tensor, batch: Batch, factors: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Forward and backward pass in training mode.

        Returns the gradient (num_weights,) of the mean loss, that loss (), and the rest of theta (P
        - num_weights,) after the pass.

        `factors` (B,), if given, multiply the examples' losses before the mean is taken.
        """
        ...

    def descend(
        self, theta: Tensor, shard: Shard, rule: Rule, factors: Tensor | None = None
    ) -> Tensor:
        """The change of theta (P,) by the planned mini-batches, as `rule` says.

        `factors` (S, B), if given, multiply the losses of each mini-batch's examples.
        """
        ...
