"""Chains of linear layers with ReLU between them, as matrix products over stacks of models.

Forward and back are written out, and each step is added to the weights by the product that finds
it, so that no gradient is ever stored. Letters: C models, B examples, P values of a model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from umbel.client.descent import Descent, held
from umbel.client.kernels.schedule import Schedule
from umbel.client.objectives import BINARY, CLASSIFICATION, REGRESSION, Objective
from umbel.client.optimizers import SGD
from umbel.summary import in_short

Slopes: TypeAlias = tuple[Tensor, Tensor]
"""Slope of a loss by the outputs of a layer (C, B, out), and the layer's inputs (C, B, in)."""


LARGE = 16_384
"""Number of values from which on the products of several models outgrow a cache."""


@dataclass(frozen=True)
class Layer:
    """A linear layer, and where its parameters begin in theta."""

    size_in: int
    size_out: int
    has_bias: bool
    start: int

    @property
    def end(self) -> int:
        """Where the next layer begins."""
        return self.start + self.size_out * (self.size_in + self.has_bias)

    def views(self, theta: Tensor) -> list[Tensor]:
        """Weights (C, out, in), and bias (C, 1, out) if there is one, in theta (C, P)."""
        cut = self.start + self.size_out * self.size_in
        weight = theta[:, self.start : cut].view(-1, self.size_out, self.size_in)
        return [weight, theta[:, None, cut : self.end]] if self.has_bias else [weight]


@dataclass(frozen=True)
class Dense:
    """The chain of a module, and what its outputs are trained for."""

    layers: tuple[Layer, ...]
    flattens: bool  # whether the module takes examples of more than one dimension
    objective: Objective

    def takes(self, x: Tensor, y: Tensor | None = None) -> bool:
        """Whether these examples (B, ...) are of a form that this is written for."""
        fine = x.dim() == 2 or (self.flattens and x.dim() > 2)
        if y is None or not fine:
            return fine
        if self.objective == CLASSIFICATION:
            return y.dim() == 1 and not y.is_floating_point()
        if self.objective == REGRESSION and not y.is_floating_point():
            return False
        size_out = self.layers[-1].size_out
        return y.shape[1:] == (size_out,) or (size_out == 1 and y.dim() == 1)

    def outputs(self, theta: Tensor, x: Tensor) -> tuple[Tensor]:
        """(C, B, out) of models (C, P) for examples (C, B, ...); either C may be 1."""
        return (_forward([layer.views(theta) for layer in self.layers], x)[-1],)

    def gradient(
        self, theta: Tensor, x: Tensor, y: Tensor, factors: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradient (C, P) of the sum over the examples of loss times factor (C, B); that sum (C,).

        The C of theta, and that of the factors, may be 1.
        """
        gradient, outputs = self._pass(theta, x, y, factors)
        losses = self.objective.losses(outputs.flatten(0, 1), y.flatten(0, 1))
        return gradient, (losses.view(outputs.shape[:2]) * factors).sum(1)

    def _pass(self, theta: Tensor, x: Tensor, y: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient of that sum and the outputs (C, B, out)."""
        layers = [layer.views(theta) for layer in self.layers]
        *passed, outputs = _forward(layers, x)
        gradient = theta.new_empty(len(outputs), self.layers[-1].end)
        for number, slopes in _back(layers, passed, self._slope(outputs, y, factors)):
            weight, *bias = self.layers[number].views(gradient)
            _put_weight(weight, slopes)
            for into in bias:
                torch.sum(slopes[0], 1, keepdim=True, out=into)
        return gradient, outputs

    def descend(
        self, descent: Descent, x: Tensor, y: Tensor, theta: Tensor, rows: Tensor
    ) -> tuple[Tensor]:
        """Updates (C, P) after a step on each mini-batch: rows (C, S, B) of x and y.

        A negative row is padding, and its complement the row that stands in for it. The C of
        theta may be 1. The optimiser must be SGD.
        """
        schedule = Schedule.of(rows)
        if schedule.at_work == [len(rows)] and not _sgd(descent).weight_decay:
            return (self._one_step(descent, x, y, theta, schedule),)
        received = schedule.arranged(theta.expand(len(rows), -1))
        paths = [_Path.of(layer.views(received), descent) for layer in self.layers]
        moving = paths
        for batch in schedule.batches(theta.dtype):
            if len(batch.rows) < len(moving[0].now[0]):
                moving = [path.first(len(batch.rows)) for path in paths]
            now, (inputs, labels) = [path.now for path in moving], batch.examples(x, y)
            *passed, outputs = _forward(now, inputs)
            slope = self._slope(outputs, labels, batch.shares)
            for number, slopes in _back(now, passed, slope):
                moving[number].step(slopes, descent)
        update = torch.empty_like(received)
        for layer, path in zip(self.layers, paths, strict=True):
            for into, new, old in zip(layer.views(update), path.now, path.received, strict=True):
                torch.sub(new, old, out=into)
        return (schedule.restored(update),)

    def _one_step(
        self, descent: Descent, x: Tensor, y: Tensor, theta: Tensor, schedule: Schedule
    ) -> Tensor:
        """As `descend`, where the first step is the last: a multiple of the gradient."""
        (batch,) = schedule.batches(theta.dtype)
        received = theta if len(theta) == 1 else schedule.arranged(theta)
        update, _ = self._pass(received, *batch.examples(x, y), -descent.lr * batch.shares)
        return schedule.restored(update)

    def _slope(self, outputs: Tensor, y: Tensor, factors: Tensor) -> Tensor:
        """Slope (C, B, out), by the outputs, of the sum of losses times factors (C, B)."""
        if self.objective == CLASSIFICATION:
            slope = outputs.softmax(2)
            minus = slope.new_full((), -1).expand(*y.shape, 1)
            return slope.scatter_add_(2, y[..., None], minus).mul_(factors[..., None])
        targets = y if y.dim() == 3 else y[..., None]
        scale = factors[..., None] / outputs.shape[2]
        if self.objective == BINARY:
            return (outputs.sigmoid() - targets) * scale
        return (outputs - targets) * (2 * scale)


def recognise(module: nn.Module, objective: Objective) -> Dense | None:
    """The chain of this module, or None if it is anything else."""
    parts = list(_unrolled(module))
    first = parts[0] if parts else None
    flattens = type(first) is nn.Flatten and (first.start_dim, first.end_dim) == (1, -1)
    linear, between = parts[flattens::2], parts[flattens + 1 :: 2]
    layers: list[Layer] = []
    for part in linear:
        if type(part) is not nn.Linear:
            return None
        start = layers[-1].end if layers else 0
        layers.append(Layer(part.in_features, part.out_features, part.bias is not None, start))
    known = (
        objective in (CLASSIFICATION, REGRESSION, BINARY)
        and len(linear) == len(between) + 1
        and all(type(part) is nn.ReLU for part in between)
        and all(one.size_out == other.size_in for one, other in pairwise(layers))
        # Parameters that two layers share are counted once.
        and sum(parameter.numel() for parameter in module.parameters()) == layers[-1].end
        and all(parameter.requires_grad for parameter in module.parameters())
        and not any(_is_special(part) for part in module.modules())
    )
    return Dense(tuple(layers), flattens, objective) if known else None


def _unrolled(module: nn.Module) -> Iterator[nn.Module]:
    if type(module) is nn.Sequential:
        for part in module:
            yield from _unrolled(part)
    else:
        yield module


def _is_special(module: nn.Module) -> bool:
    """Whether something else than its kind says happens in its passes."""
    hooked = module._forward_hooks or module._forward_pre_hooks or module._backward_hooks
    return bool(hooked or module._buffers) or is_parametrized(module)


def _forward(layers: Sequence[Sequence[Tensor]], x: Tensor) -> list[Tensor]:
    """Return the inputs of each layer and then the outputs, each (C, B, size)."""
    passed = [x.flatten(2)]
    for number, (weight, *bias) in enumerate(layers):
        out = _product(passed[-1], weight.transpose(1, 2), *bias)
        passed.append(out.relu_() if number + 1 < len(layers) else out)
    return passed


def _back(
    layers: Sequence[Sequence[Tensor]], passed: Sequence[Tensor], slope: Tensor
) -> Iterator[tuple[int, Slopes]]:
    """The layers' numbers and slopes, from the last to the first.

    A layer may be changed as soon as it is yielded.
    """
    for number in range(len(layers) - 1, -1, -1):
        inputs, of_outputs = passed[number], slope
        if number:
            slope = _product(of_outputs, layers[number][0])
            slope = torch.ops.aten.threshold_backward(slope, inputs, 0)
        yield number, (of_outputs, inputs.expand(len(of_outputs), -1, -1))


def _product(rows: Tensor, matrices: Tensor, bias: Tensor | None = None) -> Tensor:
    """rows (C, B, in) times matrices (C, in, out), plus bias (C, 1, out); either C may be 1."""
    if len(matrices) == 1:
        flat, one = rows.flatten(0, 1), matrices[0]
        out = flat @ one if bias is None else torch.addmm(bias[0], flat, one)
        return out.view(*rows.shape[:2], -1)
    rows = rows.expand(len(matrices), -1, -1)
    return torch.bmm(rows, matrices) if bias is None else torch.baddbmm(bias, rows, matrices)


def _put_weight(weight: Tensor, slopes: Slopes) -> None:
    """Make a weight (C, out, in) its gradient."""
    of_outputs, inputs = slopes
    if weight.is_cuda or weight[0].numel() < LARGE:
        weight.baddbmm_(of_outputs.transpose(1, 2), inputs, beta=0)
        return
    for into, left, right in zip(weight, of_outputs.transpose(1, 2), inputs, strict=True):
        # Products are slow to write into memory that is not in the cache: this brings it there.
        into.zero_()
        torch.mm(left, right, out=into)


def _add_to_weight(weight: Tensor, slopes: Slopes, old: float, new: float) -> None:
    """Make a weight (C, out, in) `old` times itself plus `new` times its gradient."""
    of_outputs, inputs = slopes
    weight.baddbmm_(of_outputs.transpose(1, 2), inputs, beta=old, alpha=new)


def _add_to_bias(bias: Tensor, slopes: Slopes, old: float, new: float) -> None:
    """Make a bias (C, 1, out) `old` times itself plus `new` times its gradient."""
    bias.mul_(old).add_(slopes[0].sum(1, keepdim=True), alpha=new)


ADDERS: Sequence[Callable[[Tensor, Slopes, float, float], None]] = (_add_to_weight, _add_to_bias)


@dataclass(frozen=True)
class _Path:
    """The parameters of a layer while they move."""

    now: Sequence[Tensor]
    received: Sequence[Tensor]
    velocity: Sequence[Tensor | None]

    __repr__ = in_short

    @classmethod
    def of(cls, received: Sequence[Tensor], descent: Descent) -> _Path:
        """Return the path before its first step."""
        now = [tensor.clone(memory_format=torch.contiguous_format) for tensor in received]
        moving = _sgd(descent).momentum > 0
        return cls(now, received, [torch.zeros_like(t) if moving else None for t in now])

    def first(self, clients: int) -> _Path:
        """Return the path of the first clients only, in the same memory."""
        return _Path(
            [tensor[:clients] for tensor in self.now],
            [tensor[:clients] for tensor in self.received],
            [None if tensor is None else tensor[:clients] for tensor in self.velocity],
        )

    def step(self, slopes: Slopes, descent: Descent) -> None:
        """Take one step."""
        sgd, lr, pull = _sgd(descent), descent.lr, descent.proximal
        parts = zip(self.now, self.received, self.velocity, ADDERS, strict=False)
        for now, received, velocity, add in parts:
            if velocity is not None:
                add(velocity, slopes, sgd.momentum, 1)
                velocity.add_(now, alpha=held(sgd.weight_decay + pull, now))
                velocity.sub_(received, alpha=held(pull, now))
                now.sub_(velocity, alpha=held(lr, now))
            else:
                if sgd.weight_decay or pull:
                    now.mul_(1 - lr * (sgd.weight_decay + pull))
                    now.add_(received, alpha=held(lr * pull, now))
                add(now, slopes, 1, held(-lr, now))


def _sgd(descent: Descent) -> SGD:
    assert isinstance(descent.optimizer, SGD)
    return descent.optimizer
