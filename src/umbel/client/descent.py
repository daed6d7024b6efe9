"""How a model goes down the gradients of its mini-batches."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from umbel.client.batches import Batch
from umbel.client.optimizers import Memory, Optimizer


@dataclass(frozen=True)
class Descent:
    """Gradient steps, each on one mini-batch."""

    lr: float
    proximal: float  # mu of FedProx: adds mu/2 |theta - received|^2 to the loss
    optimizer: Optimizer

    def step(
        self, theta: Tensor, gradient: Tensor, rest: Tensor, memory: Memory, batch: Batch
    ) -> tuple[Tensor, Memory]:
        """theta (P,) after a step down the gradient (num_weights,), and the optimiser's memory.

        The rest of theta is replaced by `rest`. A batch of nothing but padding moves nothing.
        """
        weights = theta[: len(gradient)]
        direction, after = self.optimizer.step(gradient, weights, memory)
        weights = weights - self.lr * direction
        moved = torch.cat([weights, rest]) if len(rest) else weights
        theta, *kept = batch.unless_empty((moved, *after), (theta, *memory))
        return theta, tuple(kept)
