"""Chains of linear layers with ReLU between them, as matrix products over stacks of models.

Forward and backward passes are written out. The matrix product that computes a step also adds it to
the weights, so that no gradient is ever stored. Letters: C models, B examples, P values of a model.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from umbel.client.descent import Beside, Descent, Meta, Moreau, Rule
from umbel.client.kernels import by_example
from umbel.client.kernels.by_example import ByExample, Span
from umbel.client.kernels.course import Course, slope_of
from umbel.client.kernels.moving import Path, Weights, sgd_of
from umbel.client.kernels.products import back, forward, is_faster_in_half, put_weight
from umbel.client.kernels.schedule import BatchSchedule
from umbel.client.objectives import BINARY, CLASSIFICATION, REGRESSION, Objective


@dataclass(frozen=True)
class Layer:
    """A linear layer, and the start of its parameters in theta."""

    size_in: int
    size_out: int
    has_bias: bool
    start: int

    @property
    def end(self) -> int:
        """The start of the next layer."""
        return self.start + self.size_out * (self.size_in + self.has_bias)

    @property
    def starts(self) -> tuple[int, ...]:
        """The starts of the weights, and of the bias if there is one."""
        cut = self.start + self.size_out * self.size_in
        return (self.start, cut) if self.has_bias else (self.start,)

    def views(self, theta: Tensor) -> list[Tensor]:
        """Weights (C, out, in), and bias (C, 1, out) if there is one, in theta (C, P)."""
        cut = self.start + self.size_out * self.size_in
        weight = theta[:, self.start : cut].view(len(theta), self.size_out, self.size_in)
        return [weight, theta[:, None, cut : self.end]] if self.has_bias else [weight]


@dataclass(frozen=True)
class Dense:
    """The chain of layers of a module, and its objective."""

    layers: tuple[Layer, ...]
    flattens: bool  # whether the module flattens examples of more than one dimension
    objective: Objective
    half: bool = False  # whether single passes compute products in bfloat16 if that is faster

    def takes(self, x: Tensor, y: Tensor | None = None) -> bool:
        """Whether these examples (B, ...) have a form that this kernel supports."""
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
        layers = [layer.views(theta) for layer in self.layers]
        return (forward(layers, x, self._halves(theta, x))[-1],)

    def gradient(
        self, theta: Tensor, x: Tensor, y: Tensor, factors: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradient (C, P) of the sum over examples of loss times factor (C, B), and the sum (C,).

        C may be 1 in any of them.
        """
        height = max(map(len, (theta, x, y, factors)))
        x, y = (tensor.expand(height, *tensor.shape[1:]) for tensor in (x, y))
        gradient, outputs = self._pass(theta, x, y, factors)
        losses = self.objective.losses(outputs.flatten(0, 1), y.flatten(0, 1))
        return gradient, (losses.view(outputs.shape[:2]) * factors).sum(1)

    def _pass(self, theta: Tensor, x: Tensor, y: Tensor, factors: Tensor) -> tuple[Tensor, Tensor]:
        """Return the gradient of that sum and the outputs (C, B, out)."""
        layers, halves = [layer.views(theta) for layer in self.layers], self._halves(theta, x)
        *passed, outputs = forward(layers, x, halves)
        gradient = theta.new_empty(len(outputs), self.layers[-1].end)
        first = slope_of(self.objective, outputs, y, factors)
        for number, slope, inputs in back(layers, passed, first, halves):
            weight, *bias = self.layers[number].views(gradient)
            put_weight(weight, slope, inputs, halves[number])
            for into in bias:
                torch.sum(slope, 1, keepdim=True, out=into)
        return gradient, outputs

    def _halves(self, theta: Tensor, x: Tensor) -> list[bool]:
        """Whether each layer computes products in bfloat16 in one pass of x (C, B, ...)."""
        rows = x.shape[1] * (len(x) if len(theta) == 1 else 1)
        sizes = [(rows, layer.size_in, layer.size_out) for layer in self.layers]
        return [self.half and is_faster_in_half(*each) for each in sizes]

    def descend(
        self,
        rule: Rule,
        x: Tensor,
        y: Tensor,
        theta: Tensor,
        rows: Tensor,
        factors: Tensor | None = None,
        *held: Tensor,
    ) -> tuple[Tensor]:
        """Changes (C, P) by all mini-batches: rows (C, S, B) of x and y.

        They are (C, 2, P) by a `Moreau` or a `Beside`. `held` are the tensors (C, ...) of the rule.
        A negative row is padding, replaced by the row ~row. C may be 1 in each of the tensors.
        The outer optimiser must be SGD.
        """
        given = (theta, rows, *held) if factors is None else (theta, rows, factors, *held)
        height = max(map(len, given))
        rows = rows.expand(height, -1, -1)
        factors = None if factors is None else factors.expand(height, -1, -1)
        rule = rule.holding(*(each.expand(height, *each.shape[1:]) for each in held))
        schedule = BatchSchedule.of(rows, factors)
        plain = isinstance(rule, Descent) and rule.constant is None and rule.spans is None
        if plain and schedule.at_work == [height] and not sgd_of(rule.outer).weight_decay:
            return (self._one_step(rule.outer, x, y, theta, schedule),)
        received = schedule.arranged(theta.expand(height, -1))
        model = list(self._paths(rule.outer, x, received, schedule, passes_of(rule)))
        course = Course(self.objective, schedule, x, y, theta.dtype)
        if isinstance(rule, Moreau | Beside):
            if isinstance(rule, Moreau):
                personal, by_share = course.follow_moreau(rule, model), None
            else:
                own, pulled = schedule.arranged(rule.own), rule.share is None
                personal = [
                    path.beside(rule.inner, each.views(own), each.views(received) if pulled else [])
                    for path, each in zip(model, self.layers, strict=True)
                ]
                by_share = course.follow_beside(rule, model, personal)
            update = theta.new_empty(height, 2, theta.shape[1] + (by_share is not None))
            self._put_updates(model, update[:, 0])
            self._put_updates(personal, update[:, 1])
            if by_share is not None:
                update[:, 0, -1], update[:, 1, -1] = 0, by_share
        else:
            if isinstance(rule, Meta):
                course.follow_meta(rule, model)
            else:
                course.follow(rule.outer, model)
            update = theta.new_empty(height, theta.shape[1])
            self._put_updates(model, update)
        return (schedule.restored(update),)

    def _paths(
        self,
        outer: Descent,
        x: Tensor,
        received: Tensor,
        schedule: BatchSchedule,
        passes: int,
    ) -> Iterator[Path]:
        """The path of each layer through the steps."""
        for number, layer in enumerate(self.layers):
            values = layer.views(received)
            sizes = layer.size_in, layer.size_out
            path: Path | None = None
            if number == 0 and not x.is_cuda and by_example.takes(outer):
                span, moves = Span.of(schedule), outer.moves(layer.start)
                if by_example.is_faster(span, schedule, *sizes, passes, moves):
                    path = ByExample.of(outer, x, span, moves, *values)
            path = Weights.of(outer, *values) if path is None else path
            if outer.constant is not None:
                path = path.holding(layer.views(schedule.arranged(outer.constant)), outer)
            yield path if outer.spans is None else path.moving(*map(outer.moves, layer.starts))

    def _put_updates(self, paths: Sequence[Path], update: Tensor) -> None:
        for layer, path in zip(self.layers, paths, strict=True):
            path.put_update(*layer.views(update))

    def _one_step(
        self, descent: Descent, x: Tensor, y: Tensor, theta: Tensor, schedule: BatchSchedule
    ) -> Tensor:
        """The result of `descend` for a single step: a multiple of the gradient."""
        (batch,) = schedule.batches(theta.dtype)
        received = theta if len(theta) == 1 else schedule.arranged(theta)
        given = batch.inputs(x), batch.labels(y)
        update, _ = self._pass(received, *given, -descent.lr * batch.shares)
        return schedule.restored(update)


def passes_of(rule: Rule) -> int:
    """The number of gradients of the model on each mini-batch."""
    return rule.steps if isinstance(rule, Moreau) else 1


def recognise(module: nn.Module, objective: Objective, half: bool = False) -> Dense | None:
    """The chain of this module, or None if the module is not a chain."""
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
        # A parameter that was removed and added again, as by prune.remove, comes after the bias.
        and all(next(part.parameters()) is part.weight for part in linear)
        and not any(_is_special(part) for part in module.modules())
    )
    return Dense(tuple(layers), flattens, objective, half) if known else None


def _unrolled(module: nn.Module) -> Iterator[nn.Module]:
    if type(module) is nn.Sequential:
        for part in module:
            yield from _unrolled(part)
    else:
        yield module


def _is_special(module: nn.Module) -> bool:
    """Whether hooks, buffers and the like make its passes differ from those of its class."""
    forward = module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module)
    backward = module._backward_hooks or module._backward_pre_hooks
    return bool(forward or backward or module._buffers) or is_parametrized(module)
