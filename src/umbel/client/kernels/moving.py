"""The parameters of a layer while gradient steps move them.

Letters: C models, B examples.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Self, TypeAlias

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


@dataclass(frozen=True)
class Moving:
    """A tensor in the course of a descent, one row per model."""

    now: Tensor
    received: Tensor | None  # None: all zeros
    velocity: Tensor | None
    constant: Tensor | None = None  # added to each gradient
    fixed: bool = False  # whether it never moves

    __repr__ = in_short

    @classmethod
    def of(cls, descent: Descent, start: Tensor, near: Tensor | None = None) -> Moving:
        """Return the tensor before its first step; it is pulled to `near`, by default to zeros."""
        now = start.clone(memory_format=torch.contiguous_format)
        resting = torch.zeros_like(now) if sgd_of(descent).momentum > 0 else None
        return cls(now, near, resting)

    def first(self, clients: int) -> Moving:
        """Return the tensor of only the first clients, in the same memory."""
        every = (self.now, self.received, self.velocity, self.constant)
        kept = (None if t is None else t[:clients] for t in every)
        return replace(Moving(*kept), fixed=self.fixed)  # type: ignore[arg-type]

    def step(self, add: Adder, descent: Descent) -> None:
        """Take one step."""
        if self.fixed:
            return
        sgd, lr, pull = sgd_of(descent), descent.lr, descent.proximal
        now, received, velocity = self.now, self.received, self.velocity
        if velocity is not None:
            add(velocity, sgd.momentum, 1)
            if self.constant is not None:
                velocity.add_(self.constant)
            velocity.add_(now, alpha=held(sgd.weight_decay + pull, now))
            if received is not None:
                velocity.sub_(received, alpha=held(pull, now))
            now.sub_(velocity, alpha=held(lr, now))
            return
        if pull and received is not None and not sgd.weight_decay:
            now.lerp_(received, held(lr * pull, now))
        elif sgd.weight_decay or pull:
            now.mul_(1 - lr * (sgd.weight_decay + pull))
            if received is not None:
                now.add_(received, alpha=held(lr * pull, now))
        add(now, 1, held(-lr, now))
        if self.constant is not None:
            now.add_(self.constant, alpha=held(-lr, now))

    def put_update(self, into: Tensor) -> None:
        """Write the sum of all steps into `into`."""
        assert self.received is not None
        torch.sub(self.now, self.received, out=into)


@dataclass(frozen=True)
class Path(ABC):
    """The parameters of a layer in the course of a descent."""

    parts: tuple[Moving, ...]  # weights or what stands for them, and bias (C, 1, out) if any

    __repr__ = in_short

    @property
    def weight(self) -> Tensor:
        """The first part."""
        return self.parts[0].now

    @property
    def bias(self) -> Tensor | None:
        """The bias (C, 1, out)."""
        return self.parts[1].now if len(self.parts) == 2 else None

    @property
    def is_fixed(self) -> bool:
        """Whether no part ever moves."""
        return all(part.fixed for part in self.parts)

    def first(self, clients: int) -> Self:
        """The path of only the first clients, in the same memory."""
        return replace(self, parts=tuple(part.first(clients) for part in self.parts))

    def moving(self, *moves: bool) -> Self:
        """The path of which some parts never move."""
        pairs = zip(self.parts, moves, strict=True)
        return replace(self, parts=tuple(replace(part, fixed=not each) for part, each in pairs))

    def zeros(self) -> Self:
        """Zeros of the same shapes, which paths are added to."""
        return self.at([torch.zeros_like(part.now) for part in self.parts])

    def at(self, now: Iterable[Tensor], near: Path | None = None) -> Self:
        """Other values, with a penalty, if any, for their distance from those of `near`."""
        anchors = [None] * len(self.parts) if near is None else [part.now for part in near.parts]
        parts = [Moving(values, anchor, None) for values, anchor in zip(now, anchors, strict=True)]
        return replace(self, parts=tuple(parts))

    def since(self, begun: Path) -> Self:
        """These values, whose steps began where those of another path did."""
        pairs = zip(self.parts, begun.parts, strict=True)
        return replace(self, parts=tuple(Moving(a.now, b.received, None) for a, b in pairs))

    def mix(self, one: Path, other: Path, share: Tensor) -> None:
        """Set the values to a mixture of two, of which the second has this share (C, 1, 1)."""
        for part, first, second in zip(self.parts, one.parts, other.parts, strict=True):
            torch.lerp(first.now, second.now, share, out=part.now)

    def put(self, start: Path, by: Path, times: float) -> None:
        """Set the values to start + times by."""
        for part, one, other in zip(self.parts, start.parts, by.parts, strict=True):
            torch.add(one.now, other.now, alpha=times, out=part.now)

    def step(self, slope: Tensor, taken: Tensor, descent: Descent) -> None:
        """Take one step."""
        for part, add in zip(self.parts, self.adders(slope, taken), strict=True):
            part.step(add, descent)

    def step_down(self, gradients: Iterable[Tensor], descent: Descent) -> None:
        """Take one step from given gradients of the parts."""
        for part, gradient in zip(self.parts, gradients, strict=True):
            part.step(partial(_add, gradient), descent)

    def add(self, slope: Tensor, taken: Tensor, old: float, new: float) -> None:
        """Set the values to old * values + new * gradient."""
        for part, add in zip(self.parts, self.adders(slope, taken), strict=True):
            add(part.now, old, new)

    def adders(self, slope: Tensor, taken: Tensor) -> Iterator[Adder]:
        """What adds the gradient of each part."""
        yield self.adder(slope, taken)
        if self.bias is not None:
            yield partial(_add, slope.sum(1, keepdim=True))

    def put_update(self, weight: Tensor, *bias: Tensor) -> None:
        """Write the sum of all steps into `weight` and `bias`."""
        self.put_weight(weight)
        for part, into in zip(self.parts[1:], bias, strict=True):
            part.put_update(into)

    @abstractmethod
    def beside(self, descent: Descent, own: Sequence[Tensor], near: Sequence[Tensor]) -> Path:
        """The path of other weights and bias for the same inputs.

        They are pulled to `near`, from where updates count; without it, to where they begin.
        """

    @abstractmethod
    def holding(self, constants: Sequence[Tensor], descent: Descent) -> Path:
        """The same path with constants that are added to the gradients of its parts."""

    @abstractmethod
    def taken(self, batch: SideBySide, x: Tensor) -> Tensor:
        """The input of these examples to a first layer; x is the storage."""

    @abstractmethod
    def forward(self, taken: Tensor, bias: bool = True) -> Tensor:
        """Outputs (C, B, out), with or without bias."""

    @abstractmethod
    def back(self, slope: Tensor) -> Tensor:
        """Slope (C, B, in) by the inputs, from the slope by the outputs (C, B, out)."""

    @abstractmethod
    def adder(self, slope: Tensor, taken: Tensor) -> Adder:
        """What adds the gradient of the first part."""

    @abstractmethod
    def put_weight(self, weight: Tensor) -> None:
        """Write the sum of the weights' steps into `weight`."""


@dataclass(frozen=True)
class Weights(Path):
    """A layer whose weights (C, out, in) change in every step."""

    __repr__ = in_short

    @classmethod
    def of(cls, descent: Descent, *received: Tensor) -> Weights:
        """Return the path of received weights (C, out, in), and bias (C, 1, out) if any."""
        return cls(tuple(Moving.of(descent, each, each) for each in received))

    def beside(self, descent: Descent, own: Sequence[Tensor], near: Sequence[Tensor]) -> Weights:
        return Weights(tuple(map(partial(Moving.of, descent), own, near or own)))

    def holding(self, constants: Sequence[Tensor], descent: Descent) -> Weights:  # noqa: ARG002
        """The same path with constants that are added to the gradients of its parts."""
        pairs = zip(self.parts, constants, strict=True)
        return replace(self, parts=tuple(replace(p, constant=each) for p, each in pairs))

    def taken(self, batch: SideBySide, x: Tensor) -> Tensor:
        return batch.inputs(x)

    def forward(self, taken: Tensor, bias: bool = True) -> Tensor:
        return product(taken, self.weight.transpose(1, 2), self.bias if bias else None)

    def back(self, slope: Tensor) -> Tensor:
        return product(slope, self.weight)

    def adder(self, slope: Tensor, taken: Tensor) -> Adder:
        return partial(_add_product, slope, taken)

    def put_weight(self, weight: Tensor) -> None:
        self.parts[0].put_update(weight)


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


def sgd_of(descent: Descent) -> SGD:
    """The optimiser of a descent, which must be SGD."""
    assert isinstance(descent.optimizer, SGD)
    return descent.optimizer
