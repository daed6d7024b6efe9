"""Mini-batches computed in parts, so that their activations need less memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from umbel.client.batches import Batch, Shard
from umbel.client.descent import Rule
from umbel.client.kernels.base import Kernel


@dataclass(frozen=True)
class Accumulating:
    """Calls another kernel with a few examples at a time, and adds up the gradients of the parts.

    It is for modules that do not mix the examples of a batch: results differ only by rounding.
    """

    kernel: Kernel
    size: int  # largest number of examples in one pass

    def outputs(self, theta: Tensor, x: Tensor) -> Tensor:
        if len(x) <= self.size:
            return self.kernel.outputs(theta, x)
        return torch.cat([self.kernel.outputs(theta, part) for part in torch.split(x, self.size)])

    def gradient(
        self, theta: Tensor, batch: Batch, factors: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        if len(batch.x) <= self.size:
            return self.kernel.gradient(theta, batch, factors)
        gradient = loss = rest = None
        for part, own, share in self._parts(batch, factors, theta.dtype):
            slope, value, rest = self.kernel.gradient(theta, part, own)
            gradient = slope * share if gradient is None else gradient + slope * share
            loss = value * share if loss is None else loss + value * share
        assert gradient is not None
        assert loss is not None
        assert rest is not None
        return gradient, loss, rest

    def descend(
        self, theta: Tensor, shard: Shard, rule: Rule, factors: Tensor | None = None
    ) -> Tensor:
        if shard.planned.rows.shape[-1] <= self.size:
            return self.kernel.descend(theta, shard, rule, factors)
        return rule.by_gradients(self.gradient, theta, shard, factors)

    def _parts(
        self, batch: Batch, factors: Tensor | None, dtype: torch.dtype
    ) -> Iterator[tuple[Batch, Tensor | None, Tensor]]:
        """Parts of a batch, their factors, and the weight () of each in the mean of all."""
        shares = batch.shares(dtype)
        for rows in torch.split(torch.arange(len(batch.x), device=batch.x.device), self.size):
            keep = None if batch.keep is None else batch.keep[rows]
            # A part may consist only of padding, even if the whole batch does not.
            part = Batch(batch.x[rows], batch.y[rows], keep, keep is not None)
            yield part, None if factors is None else factors[rows], shares[rows].sum()
