"""The parameters of a layer while gradient steps move them.

Letters: C models, B examples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol, TypeAlias

import torch
from torch import Tensor

from umbel.client.descent import Descent, held
from umbel.client.kernels import onednn
from umbel.client.kernels.products import product
from umbel.client.kernels.schedule import SideBySide
from umbel.client.optimizers import SGD
from umbel.summary import in_short

Adder: TypeAlias = Callable[[Tensor, float, float], None]
"""Called with (tensor, old, new): sets the tensor to old * tensor + new * gradient."""


class Path(Protocol):
    """The parameters of a layer in the course of a descent."""

    def first(self, clients: int) -> Path:
        """The path of only the first clients, in the same memory."""
        ...

    def taken(self, batch: SideBySide, x: Tensor) -> Tensor:
        """The input of these examples to a first layer; x is the storage."""
        ...

    def forward(self, taken: Tensor) -> Tensor:
        """Outputs (C, B, out)."""
        ...

    def back(self, slope: Tensor) -> Tensor:
        """Slope (C, B, in) by the inputs, from the slope by the outputs (C, B, out)."""
        ...

    def step(self, slope: Tensor, taken: Tensor, descent: Descent) -> None:
        """Take one step."""
        ...

    def put_update(self, weight: Tensor, *bias: Tensor) -> None:
        """Write the sum of all steps into `weight` and `bias`."""
        ...


@dataclass(frozen=True)
class Moving:
    """A tensor in the course of a descent, one row per model."""

    now: Tensor
    received: Tensor | None  # None: all zeros
    velocity: Tensor | None

    __repr__ = in_short

    @classmethod
    def of(cls, received: Tensor, descent: Descent) -> Moving:
        """Return the tensor before its first step."""
        now = received.clone(memory_format=torch.contiguous_format)
        return cls(now, received, _resting(now, descent))

    @classmethod
    def from_zero(cls, now: Tensor, descent: Descent) -> Moving:
        """Return a tensor of zeros before its first step."""
        return cls(now, None, _resting(now, descent))

    def first(self, clients: int) -> Moving:
        """Return the tensor of only the first clients, in the same memory."""
        every = (self.now, self.received, self.velocity)
        return Moving(*(None if t is None else t[:clients] for t in every))  # type: ignore[arg-type]

    def step(self, add: Adder, descent: Descent) -> None:
        """Take one step."""
        sgd, lr, pull = sgd_of(descent), descent.lr, descent.proximal
        now, received, velocity = self.now, self.received, self.velocity
        if velocity is not None:
            add(velocity, sgd.momentum, 1)
            velocity.add_(now, alpha=held(sgd.weight_decay + pull, now))
            if received is not None:
                velocity.sub_(received, alpha=held(pull, now))
            now.sub_(velocity, alpha=held(lr, now))
            return
        if sgd.weight_decay or pull:
            now.mul_(1 - lr * (sgd.weight_decay + pull))
            if received is not None:
                now.add_(received, alpha=held(lr * pull, now))
        add(now, 1, held(-lr, now))

    def put_update(self, into: Tensor) -> None:
        """Write the sum of all steps into `into`."""
        assert self.received is not None
        torch.sub(self.now, self.received, out=into)


@dataclass(frozen=True)
class Weights:
    """A layer whose weights change in every step."""

    weight: Moving  # (C, out, in)
    bias: Moving | None  # (C, 1, out)

    __repr__ = in_short

    @classmethod
    def of(cls, weight: Tensor, bias: Tensor | None, descent: Descent) -> Weights:
        """Return the path of received weights (C, out, in) and bias (C, 1, out)."""
        path = None if bias is None else Moving.of(bias, descent)
        return cls(Moving.of(weight, descent), path)

    def first(self, clients: int) -> Weights:
        bias = None if self.bias is None else self.bias.first(clients)
        return Weights(self.weight.first(clients), bias)

    def taken(self, batch: SideBySide, x: Tensor) -> Tensor:
        return batch.inputs(x)

    def forward(self, taken: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.now
        return product(taken, self.weight.now.transpose(1, 2), bias)

    def back(self, slope: Tensor) -> Tensor:
        return product(slope, self.weight.now)

    def step(self, slope: Tensor, taken: Tensor, descent: Descent) -> None:
        self.weight.step(partial(_add_product, slope, taken), descent)
        if self.bias is not None:
            self.bias.step(partial(_add, slope.sum(1, keepdim=True)), descent)

    def put_update(self, weight: Tensor, *bias: Tensor) -> None:
        self.weight.put_update(weight)
        for into in bias:
            assert self.bias is not None
            self.bias.put_update(into)


def _add_product(slope: Tensor, inputs: Tensor, weight: Tensor, old: float, new: float) -> None:
    if not onednn.is_faster_for(slope.shape[1], weight[0]):
        weight.baddbmm_(slope.transpose(1, 2), inputs, beta=old, alpha=new)
        return
    for into, left, right in zip(weight, slope.transpose(1, 2), inputs, strict=True):
        _add(onednn.linear(left, right.t()), into, old, new)


def _add(gradient: Tensor, values: Tensor, old: float, new: float) -> None:
    if old != 1:
        values.mul_(old)
    values.add_(gradient, alpha=new)


def _resting(now: Tensor, descent: Descent) -> Tensor | None:
    return torch.zeros_like(now) if sgd_of(descent).momentum > 0 else None


def sgd_of(descent: Descent) -> SGD:
    """The optimiser of a descent, which must be SGD."""
    assert isinstance(descent.optimizer, SGD)
    return descent.optimizer
