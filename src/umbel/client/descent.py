"""Gradient descent of a model on its mini-batches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from umbel.client.batches import Batch
from umbel.client.optimizers import Memory, Optimizer


def held(factor: float, values: Tensor) -> float:
    """The factor, limited to the range of these values' type; training diverges beyond it."""
    most = torch.finfo(values.dtype).max
    return max(-most, min(factor, most))


@dataclass(frozen=True)
class Descent:
    """Gradient steps, each on one mini-batch."""

    lr: float
    proximal: float  # mu of FedProx: adds mu/2 |theta - received|^2 to the loss
    optimizer: Optimizer

    def start(self, received: Tensor) -> Memory:
        """Return the memory before the first step from the received weights."""
        inside = self.optimizer.start(received)
        return (*inside, received) if self.proximal else inside

    def direction(self, gradient: Tensor, weights: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """Return the direction, from which `lr` times it is subtracted, and the next memory."""
        if not self.proximal:
            return self.optimizer.step(gradient, weights, memory)
        *inside, received = memory
        slope = gradient + self.proximal * (weights - received)
        direction, after = self.optimizer.step(slope, weights, tuple(inside))
        return direction, (*after, received)

    def step(
        self, theta: Tensor, gradient: Tensor, rest: Tensor, memory: Memory, batch: Batch
    ) -> tuple[Tensor, Memory]:
        """theta (P,) after a step down the gradient (num_weights,), and the memory after it.

        The rest of theta is replaced by `rest`. A batch of only padding changes nothing.
        """
        weights = theta[: len(gradient)]
        direction, after = self.direction(gradient, weights, memory)
        weights = weights - self.lr * direction
        moved = torch.cat([weights, rest]) if len(rest) else weights
        theta, *kept = batch.unless_empty((moved, *after), (theta, *memory))
        return theta, tuple(kept)
