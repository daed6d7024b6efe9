"""The course of models through their mini-batches, layer by layer of a chain.

Letters: C models, B examples.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from umbel.client.descent import Beside, Descent, Meta, Moreau
from umbel.client.kernels.moving import Path
from umbel.client.kernels.schedule import BatchSchedule, SideBySide
from umbel.client.objectives import BINARY, CLASSIFICATION, FEW, REGRESSION, Objective
from umbel.summary import in_short


@dataclass(frozen=True)
class Course:
    """The mini-batches of many clients, which move the layers of a chain as a rule says."""

    objective: Objective
    schedule: BatchSchedule
    x: Tensor
    y: Tensor
    dtype: torch.dtype  # of shares

    __repr__ = in_short

    def follow(self, descent: Descent, model: Sequence[Path]) -> None:
        """Take a step on each mini-batch."""
        for batch, moving in self._at_work(model):
            for path, slope, taken in self._backward(moving, batch):
                path.step(slope, taken, descent)

    def follow_moreau(self, rule: Moreau, model: Sequence[Path]) -> list[Path]:
        """Move the model w and a personal model, whose path from the received one is returned."""
        near = [path.at([part.now.clone() for part in path.parts], near=path) for path in model]
        for batch, moving, personal in self._at_work(model, near):
            for _ in range(rule.steps):
                for path, slope, taken in self._backward(personal, batch):
                    path.step(slope, taken, rule.inner)
            for path, own in zip(moving, personal, strict=True):
                pairs = zip(path.parts, own.parts, strict=True)
                away = [(part.now - other.now).mul_(rule.pull) for part, other in pairs]
                path.step_down(away, rule.outer)
        return [own.since(path) for own, path in zip(near, model, strict=True)]

    def follow_beside(
        self, rule: Beside, model: Sequence[Path], own: Sequence[Path]
    ) -> Tensor | None:
        """Move the model w, and v beside it, through mixtures of both if it has a share.

        Then it returns the derivative (C,) of the first mini-batch's loss by the share.
        """
        shares, by_share, between = None, None, own
        if rule.share is not None:
            shares = self.schedule.arranged(rule.share)[:, None, None]
            between = [own[0], *(path.zeros() for path in own[1:])]
        for batch, one, other, mixture in self._at_work(model, own, between):
            inputs, of_one = self._first(one[0], batch)
            of_mixture = other[0].forward(inputs)
            if shares is not None:
                # A mixture of weights gives the same mixture of outputs, which are fewer values.
                share = shares[: len(batch.rows)]
                of_mixture = torch.lerp(of_one, of_mixture, share)
                for path, begin, end in zip(mixture[1:], one[1:], other[1:], strict=True):
                    path.mix(begin, end, share)
            layers = list(self._backward(mixture, batch, inputs, of_mixture))
            if shares is not None and by_share is None:
                by_share = torch.zeros_like(shares[:, 0, 0])
                for w, v, (_, slope, taken) in zip(one[::-1], other[::-1], layers, strict=True):
                    away = v.forward(taken) - w.forward(taken)
                    by_share[: len(slope)] += (slope * away).sum((1, 2))
            for path, slope, taken in self._backward(one, batch, inputs, of_one):
                path.step(slope, taken, rule.outer)
            for path, (_, slope, taken) in zip(other[::-1], layers, strict=True):
                path.step(slope if shares is None else slope * share, taken, rule.inner)
        return by_share

    def follow_meta(self, rule: Meta, model: Sequence[Path]) -> None:
        """Descend the loss after a gradient step."""
        trial = [path.at([torch.empty_like(part.now) for part in path.parts]) for path in model]
        vector, total = ([path.zeros() for path in model] for _ in range(2))
        course = self._at_work(model, trial, vector, total)
        for batch, moving, trial, vector, total in course:
            _put(trial, moving, moving, 0)
            self._add(trial, batch, trial, 1, -rule.alpha)
            self._add(trial, next(course)[0], vector, 0, 1)
            if rule.variant != "first-order":
                third = next(course)[0]
                _put(total, vector, vector, 0)
                if rule.variant == "exact":
                    self._add_curved(moving, vector, third, total, -rule.alpha)
                else:
                    for delta in (rule.delta, -rule.delta):
                        _put(trial, moving, vector, delta)
                        self._add(trial, third, total, 1, -rule.alpha / (2 * delta))
            down = vector if rule.variant == "first-order" else total
            for path, slope in zip(moving, down, strict=True):
                path.step_down([part.now for part in slope.parts], rule.outer)

    def _at_work(self, *models: Sequence[Path]) -> Iterator[tuple[Any, ...]]:
        """Each mini-batch, and those clients of the models that have one."""
        count = self.schedule.at_work[0] if self.schedule.at_work else 0
        for batch in self.schedule.batches(self.dtype):
            if len(batch.rows) < count:
                count = len(batch.rows)
                models = tuple([path.first(count) for path in model] for model in models)
            yield batch, *models

    def _backward(
        self, model: Sequence[Path], batch: SideBySide, *first: Tensor
    ) -> Iterator[tuple[Path, Tensor, Tensor]]:
        """Each layer from the last to the first that moves: with its inputs, and the slope by its
        outputs.

        `first` are the inputs and outputs of the first layer, if they are known.
        """
        inputs, outputs = first or self._first(model[0], batch)
        passed = [inputs]
        for path in model[1:]:
            passed.append(outputs.relu_())
            outputs = path.forward(passed[-1])
        slope = slope_of(self.objective, outputs, batch.labels(self.y), batch.shares)
        lowest = next((n for n, path in enumerate(model) if not path.is_fixed), len(model))
        for number in range(len(model) - 1, lowest - 1, -1):
            of_outputs = slope
            if number > lowest:
                slope = model[number].back(of_outputs)
                slope = torch.ops.aten.threshold_backward(slope, passed[number], 0)
            yield model[number], of_outputs, passed[number]

    def _first(self, path: Path, batch: SideBySide) -> tuple[Tensor, Tensor]:
        """The inputs and outputs of the first layer."""
        inputs = path.taken(batch, self.x)
        return inputs, path.forward(inputs)

    def _add(
        self, at: Sequence[Path], batch: SideBySide, into: Sequence[Path], old: float, new: float
    ) -> None:
        """Set `into` to old * into + new * gradient at a model, which may be the same."""
        layers = zip(reversed(into), self._backward(at, batch), strict=True)
        for path, (_, slope, taken) in layers:
            path.add(slope, taken, old, new)

    def _add_curved(
        self,
        model: Sequence[Path],
        along: Sequence[Path],
        batch: SideBySide,
        into: Sequence[Path],
        times: float,
    ) -> None:
        """Add times H v, the change of the gradient along v: forward and back by the chain rule."""
        passed, changes = [model[0].taken(batch, self.x)], list[Tensor]()
        for number, (path, by) in enumerate(zip(model, along, strict=True)):
            inputs = passed[-1]
            outputs, change = path.forward(inputs), by.forward(inputs)
            if number:
                change = change + path.forward(changes[-1], bias=False)
            if number + 1 < len(model):
                outputs = outputs.relu_()
                change = change * (outputs > 0)
            passed.append(outputs)
            changes.append(change)
        outputs, change = passed.pop(), changes.pop()
        slope = slope_of(self.objective, outputs, batch.labels(self.y), batch.shares)
        change = curved(self.objective, outputs, change, batch.shares)
        for number in range(len(model) - 1, -1, -1):
            into[number].add(change, passed[number], 1, times)
            if number:
                into[number].adder(slope, changes[number - 1])(into[number].weight, 1, times)
                change = model[number].back(change) + along[number].back(slope)
                change = change * (passed[number] > 0)
                slope = model[number].back(slope) * (passed[number] > 0)


def _put(into: Sequence[Path], start: Sequence[Path], by: Sequence[Path], times: float) -> None:
    """Set the values of all layers to start + times by."""
    for path, one, other in zip(into, start, by, strict=True):
        path.put(one, other, times)


def slope_of(objective: Objective, outputs: Tensor, y: Tensor, factors: Tensor) -> Tensor:
    """Slope (C, B, out) by outputs (C, B, out) of the sum of losses times factors (C, B)."""
    if objective == CLASSIFICATION:
        few = outputs.shape[2] < FEW and not outputs.is_cuda
        slope = outputs.transpose(1, 2).softmax(1).mT.contiguous() if few else outputs.softmax(2)
        minus = slope.new_full((), -1).expand(*y.shape, 1)
        return slope.scatter_add_(2, y[..., None], minus).mul_(factors[..., None])
    targets = y if y.dim() == 3 else y[..., None]
    scale = factors[..., None] / outputs.shape[2]
    if objective == BINARY:
        return (outputs.sigmoid() - targets) * scale
    return (outputs - targets) * (2 * scale)


def curved(objective: Objective, outputs: Tensor, along: Tensor, factors: Tensor) -> Tensor:
    """The derivative of `slope_of` along a change (C, B, out) of the outputs."""
    if objective == REGRESSION:
        return along * (2 / outputs.shape[2] * factors[..., None])
    if objective == BINARY:
        chances = outputs.sigmoid()
        return chances * (1 - chances) * along * (factors[..., None] / outputs.shape[2])
    chances = outputs.softmax(2)
    return chances * (along - (chances * along).sum(2, keepdim=True)) * factors[..., None]
