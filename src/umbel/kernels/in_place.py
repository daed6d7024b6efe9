"""One client after another: the steps of a descent in the memory of one module.

Nothing is copied but the model received and the update. Images have their channels last in memory,
which makes convolutions on a CPU faster.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from umbel.descent import Descent
from umbel.objectives import Objective
from umbel.shard import Batch

IMAGES = (nn.Conv2d, nn.ConvTranspose2d)


class InPlace:
    """A module of one's own to train clients in; not for two threads at once."""

    def __init__(
        self,
        module: nn.Module,
        weights: Sequence[str],
        rest: Sequence[str],
        scratch: Sequence[str],
        objective: Objective,
        precision: torch.dtype | None,
    ) -> None:
        self.objective = objective
        self.precision = precision
        self.module = copy.deepcopy(module).train()
        self.images = any(isinstance(part, IMAGES) for part in self.module.modules())
        if self.images:
            self.module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        tensors = dict([*self.module.named_parameters(), *self.module.named_buffers()])
        self.weights = [tensors[name] for name in weights]
        self.tensors = [*self.weights, *(tensors[name] for name in rest)]
        self.scratch = [(tensors[name], tensors[name].clone()) for name in scratch]

    def descend(self, theta: Tensor, batches: Iterable[Batch], descent: Descent) -> Tensor:
        """The update (P,) of theta after a step on each of the batches, which have no padding."""
        received = self._load(theta)
        memory = [descent.optimizer.start(weight.detach()) for weight in self.weights]
        for batch in batches:
            gradients = torch.autograd.grad(self._loss(batch), self.weights, materialize_grads=True)
            with torch.no_grad():
                for n, (weight, gradient) in enumerate(zip(self.weights, gradients, strict=True)):
                    if descent.proximal:
                        gradient = gradient + descent.proximal * (weight - received[n])
                    direction, memory[n] = descent.optimizer.step(gradient, weight, memory[n])
                    weight.sub_(direction, alpha=descent.lr)
        update = torch.empty_like(theta)
        for into, new, old in zip(self._views(update), self.tensors, received, strict=True):
            torch.sub(new.detach(), old, out=into)
        return update

    def _load(self, theta: Tensor) -> list[Tensor]:
        received = self._views(theta)
        with torch.no_grad():
            for tensor, values in zip(self.tensors, received, strict=True):
                tensor.copy_(values)
            for buffer, start in self.scratch:
                buffer.copy_(start)
        return received

    def _views(self, theta: Tensor) -> list[Tensor]:
        parts = torch.split(theta, [tensor.numel() for tensor in self.tensors])
        return [part.view(t.shape) for part, t in zip(parts, self.tensors, strict=True)]

    def _loss(self, batch: Batch) -> Tensor:
        x = batch.x
        if self.images and x.dim() == 4:
            x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast(x.device.type, self.precision, enabled=self.precision is not None):
            return batch.mean(self.objective.losses(self.module(x), batch.y))
