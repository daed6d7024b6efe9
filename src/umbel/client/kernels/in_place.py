"""The kernel for clients in sequence: all steps of a descent in the memory of one module.

Only the received model and the update are copied. Images may have their channels last in memory,
which makes convolutions on a CPU faster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import torch
from torch import Tensor, nn

from umbel.client.batches import Batch, Shard
from umbel.client.constants import twin
from umbel.client.descent import Descent, Moreau, Rule, held, weighted
from umbel.client.kernels.general import General
from umbel.client.layout import tensors_of
from umbel.client.optimizers import Memory

IMAGES = (nn.Conv2d, nn.ConvTranspose2d)
"""Layers that are faster if the channels of images are last."""


class InPlace:
    """Trains clients in a module of its own; not for two threads at the same time."""

    def __init__(self, general: General, channels_last: bool = False) -> None:
        self.general = general
        self.module = twin(general.modules.training, general.modules.layout)
        self.channels_last = channels_last
        if channels_last:
            _put_channels_last(self.module)
        for part in self.module.modules():
            if isinstance(part, nn.RNNBase):
                part.flatten_parameters()  # on a GPU: contiguous, as cuDNN needs them
        tensors, layout = tensors_of(self.module), general.modules.layout
        self.weights = [tensors[entry.name] for entry in layout.weights]
        self.tensors = [*self.weights, *(tensors[entry.name] for entry in layout.rest)]
        self.scratch = [
            (self._places(name), start) for name, start in general.modules.scratch.items()
        ]

    def outputs(self, theta: Tensor, x: Tensor) -> Tensor:
        return self.general.outputs(theta, self._laid_out(x))

    def gradient(
        self, theta: Tensor, batch: Batch, factors: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        self._load(theta)
        loss = self._loss(batch, factors)
        slopes = torch.autograd.grad(loss, self.weights, materialize_grads=True)
        rest = [tensor.detach().flatten() for tensor in self.tensors[len(self.weights) :]]
        gradient = torch.cat([slope.to_dense().flatten() for slope in slopes])
        return gradient, loss.detach(), torch.cat(rest) if rest else theta[len(gradient) :]

    def descend(
        self, theta: Tensor, shard: Shard, rule: Rule, factors: Tensor | None = None
    ) -> Tensor:
        """The change of theta by the mini-batches, which must have no padding."""
        if not isinstance(rule, Descent | Moreau):
            return rule.by_gradients(self.gradient, theta, shard, factors)
        received = self._load(theta)
        outer = self._of_each(rule.outer)
        starts = [(d, weight.detach()) for weight, d in outer]  # these will be moved
        memory = [d.start(each.clone() if d.proximal else each) for d, each in starts]
        if isinstance(rule, Descent):
            for batch, own in weighted(shard, factors):
                memory = self._step(outer, batch, own, memory)
            return self._since(received, self.weights, rule)
        model, inner = (
            [weight.detach().clone() for weight in self.weights],
            self._of_each(rule.inner),
        )
        for batch, own in weighted(shard, factors):
            for _ in range(rule.steps):
                self._step(inner, batch, own, [(weight,) for weight in model])
            pairs = zip(model, self.weights, strict=True)
            away = [rule.pull * (weight - near.detach()) for weight, near in pairs]
            memory = _moved(list(zip(model, (d for _, d in outer), strict=True)), away, memory)
        ends = (model, self.weights)
        return torch.stack([self._since(received, each, rule.outer) for each in ends])

    def _of_each(self, descent: Descent) -> list[tuple[Tensor, Descent]]:
        """The weights that move, each with its own steps."""
        sizes = [weight.numel() for weight in self.weights]
        starts = accumulate(sizes, initial=0)
        constant = descent.constant
        parts = [None] * len(sizes) if constant is None else self._views(constant, self.weights)
        every = zip(self.weights, starts, parts, strict=False)
        return [(w, replace(descent, constant=p)) for w, begin, p in every if descent.moves(begin)]

    def _step(
        self,
        moving: Sequence[tuple[Tensor, Descent]],
        batch: Batch,
        factors: Tensor | None,
        memory: Sequence[Memory],
    ) -> list[Memory]:
        """Take one step, and return the memory after it."""
        self._restart()
        loss = self._loss(batch, factors)
        weights = [weight for weight, _ in moving]
        gradients = torch.autograd.grad(loss, weights, materialize_grads=True)
        return _moved(moving, gradients, memory)

    def _since(
        self, received: Sequence[Tensor], weights: Sequence[Tensor], descent: Descent
    ) -> Tensor:
        """The change (P,) to these weights, and to the statistics that the module holds."""
        ends = [*weights, *self.tensors[len(weights) :]]
        update = received[0].new_empty(sum(tensor.numel() for tensor in ends))
        begin = 0
        for into, new, old in zip(self._views(update, ends), ends, received, strict=True):
            torch.sub(new.detach() if descent.moves(begin) else old, old, out=into)
            begin += into.numel()
        return update

    def _load(self, theta: Tensor) -> list[Tensor]:
        received = self._views(theta, self.tensors)
        with torch.no_grad():
            for tensor, values in zip(self.tensors, received, strict=True):
                tensor.copy_(values)
        self._restart()
        return received

    def _restart(self) -> None:
        """Reset the buffers that a pass may change to their initial values."""
        for places, start in self.scratch:
            buffer = start.clone()  # one for all modules: one layer may read values of another
            for owner, name in places:
                setattr(owner, name, buffer)  # a pass may have replaced the tensor

    def _places(self, name: str) -> list[tuple[nn.Module, str]]:
        """The modules that hold the tensor of this name, each with its own name for it."""
        further = [place for place, own in self.general.modules.places.items() if own == name]
        cut = [place.rpartition(".") for place in (name, *further)]
        return [(self.module.get_submodule(owner), leaf) for owner, _, leaf in cut]

    def _views(self, values: Tensor, tensors: Sequence[Tensor]) -> list[Tensor]:
        parts = torch.split(values, [tensor.numel() for tensor in tensors])
        return [part.view(t.shape) for part, t in zip(parts, tensors, strict=True)]

    def _loss(self, batch: Batch, factors: Tensor | None = None) -> Tensor:
        outputs = self.general.passed(self.module, self._laid_out(batch.x))
        values = self.general.objective.losses(outputs, batch.y)
        return batch.mean(values if factors is None else values * factors)

    def _laid_out(self, x: Tensor) -> Tensor:
        """The same inputs, in the memory format of the kernel."""
        if not (self.channels_last and x.dim() == 4):
            return x
        last = x.permute(0, 2, 3, 1)
        # The strides of an image with one channel match both formats, unless it is flat in between.
        return last.flatten(1).view(last.shape).permute(0, 3, 1, 2)


@torch.no_grad()
def _moved(
    moving: Sequence[tuple[Tensor, Descent]],
    gradients: Sequence[Tensor],
    memory: Sequence[Memory],
) -> list[Memory]:
    """Move weights down their gradients, and return the memory after it."""
    after = []
    for (weight, descent), gradient, before in zip(moving, gradients, memory, strict=True):
        direction, kept = descent.direction(gradient.to_dense(), weight, before)
        weight.sub_(direction, alpha=held(descent.lr, weight))
        after.append(kept)
    return after


def _put_channels_last(module: nn.Module) -> None:
    """Put the channels of all 4-dimensional tensors last; 5-dimensional ones don't support it.

    Buffers may share memory with another module, which must not change.
    """
    for parameter in module.parameters():
        if parameter.dim() == 4:
            parameter.data = _with_channels_last(parameter.data)
    # Tensors that layers share must stay shared.
    last = {id(buffer): _with_channels_last(buffer) for buffer in module.buffers()}
    for part in module.modules():
        for name, buffer in list(part.named_buffers(recurse=False, remove_duplicate=False)):
            setattr(part, name, last[id(buffer)])


def _with_channels_last(tensor: Tensor) -> Tensor:
    if tensor.dim() != 4:
        return tensor
    return tensor.contiguous(memory_format=torch.channels_last)
