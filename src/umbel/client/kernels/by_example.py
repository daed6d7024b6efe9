"""A first layer with unchanged weights and a row of coefficients for each example.

Gradient steps change the weights W (out, in) of a first layer only by products of slopes and
examples: W = W_0 + A' X for examples X (n, in) and coefficients A (n, out). The outputs for X are
then X W_0' + (X X') A. If a client goes through few examples many times, it is less work to compute
X W_0' and X X' once, to change the rows of A in every step, and to compute A' X at the end. A
constant D that is added to each gradient adds a multiple of it: W = W_0 + A' X + s D. So does a
beginning elsewhere: V = W_0 + A' X + s (V_0 - W_0) for a model V that is pulled to W_0.
Letters: C models, B examples of a mini-batch, n examples of a client.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from umbel.client.descent import Descent
from umbel.client.kernels.moving import Adder, Moving, Path, sgd_of
from umbel.client.kernels.products import matmul
from umbel.client.kernels.schedule import BatchSchedule, SideBySide
from umbel.summary import in_short

SMALL, LARGE = 7_000, 100_000
"""Fewest weights of a layer for which this is tried, and fewest that exceed the nearest cache."""

STEP = 10
"""Reading weights beyond that cache costs as much as this many examples of a mini-batch."""

WORTHWHILE = 0.75
"""Largest number of operations, relative to steps on weights beyond that cache."""

NEARLY_SURE = 0.6
"""The same for weights that fit in that cache."""

ROOM = 3
"""Largest additional memory, in units of the layer's weights."""


@dataclass(frozen=True)
class Span:
    """The range of each client's examples in the storage, where they are consecutive."""

    start: Tensor  # (C,)
    sizes: Sequence[int]

    __repr__ = in_short

    @classmethod
    def of(cls, schedule: BatchSchedule) -> Span:
        """The range from the first to the last of a client's examples in any mini-batch."""
        low, high = schedule.rows.amin((0, 2)), schedule.rows.amax((0, 2))
        return cls(low, (high - low + 1).tolist())

    @property
    def most(self) -> int:
        """The largest number of examples of a client."""
        return max(self.sizes)


def is_faster(
    span: Span,
    schedule: BatchSchedule,
    size_in: int,
    size_out: int,
    passes: int = 1,
    moves: bool = True,
) -> bool:
    """Whether coefficients are faster than steps on the weights for a layer of these sizes.

    Each mini-batch has so many `passes`. Weights that do not move need no coefficients.
    """
    most, values = span.most, size_in * size_out
    steps, _, width = schedule.rows.shape
    steps *= passes
    seen = steps * width
    here = 2 * most * values + most * most * size_in + seen * most * size_out
    if values < SMALL or most * (most + 2 * size_out) > ROOM * values:
        return False
    if not moves:
        return most <= NEARLY_SURE * seen
    if values < LARGE:
        return here <= NEARLY_SURE * 2 * seen * values
    return here <= WORTHWHILE * 2 * (seen + STEP * steps) * values


@dataclass(frozen=True)
class ByExample(Path):
    """The path of a layer with coefficients by example; the optimiser has no weight decay.

    Its first part is A (C, n, out).
    """

    products: Tensor  # (C, n, n) X X', inner products of examples
    received: Tensor  # (C, n, out) X W_0'
    before: Tensor  # (C, 1) number of a row in the storage minus its position in X
    examples: Sequence[Tensor]  # X (n, in) of each client
    constant: Tensor | None = None  # D (C, out, in)
    along: Tensor | None = None  # (C, n, out) X D'
    times: Moving | None = None  # s (C, 1, 1)
    rate: float = 0.0  # the gradient of s

    __repr__ = in_short

    @classmethod
    def of(
        cls, descent: Descent, x: Tensor, span: Span, moves: bool, weight: Tensor, *bias: Tensor
    ) -> ByExample:
        """Return the path of received weights (C, out, in), and bias (C, 1, out) if any.

        x (total, ...) is the storage of examples. Only outputs are computed of weights that do not
        move.
        """
        flat, count, most, size_out = x.flatten(1), len(weight), span.most, weight.shape[1]
        # A product of two examples may exceed the range of float16, even if no input does.
        full = torch.float32 if weight.dtype == torch.float16 else weight.dtype
        starts = zip(span.start.tolist(), span.sizes, strict=True)
        examples = [flat[start : start + size] for start, size in starts]
        products = torch.zeros(count if moves else 0, most, most, dtype=full)
        received = _outputs(examples, weight, torch.zeros(count, most, size_out, dtype=full))
        for rows, into in zip(examples, products, strict=moves):
            rows = rows.to(full)
            into[: len(rows), : len(rows)] = matmul(rows, rows.t())
        coefficients = Moving.of(descent, received.new_zeros(()).expand_as(received))
        return cls(
            (coefficients, *(Moving.of(descent, each, each) for each in bias)),
            products,
            received,
            (span.start - torch.arange(count) * most)[:, None],
            examples,
        )

    def holding(self, constants: Sequence[Tensor], descent: Descent) -> ByExample:
        constant, *of_bias = constants
        pairs = zip(self.parts[1:], of_bias, strict=True)
        bias = [replace(part, constant=each) for part, each in pairs]
        along = _outputs(self.examples, constant, torch.zeros_like(self.received))
        # s begins at 0, and moves as a row of A does whose gradient is 1.
        times = Moving.of(descent, torch.zeros_like(along[:, :1, :1]))
        parts = (self.parts[0], *bias)
        return replace(self, parts=parts, constant=constant, along=along, times=times, rate=1.0)

    def first(self, clients: int) -> ByExample:
        return replace(
            super().first(clients),
            products=self.products[:clients],
            received=self.received[:clients],
            before=self.before[:clients],
            along=None if self.along is None else self.along[:clients],
            times=None if self.times is None else self.times.first(clients),
        )

    def step(self, slope: Tensor, taken: Tensor, descent: Descent) -> None:
        super().step(slope, taken, descent)
        if self.times is not None:
            self.times.step(partial(_add_number, self.rate), descent)

    def zeros(self) -> ByExample:
        return replace(super().zeros(), received=torch.zeros_like(self.received))

    def beside(self, descent: Descent, own: Sequence[Tensor], near: Sequence[Tensor]) -> ByExample:
        outputs = _outputs(self.examples, own[0], torch.zeros_like(self.received))
        coefficients = Moving.of(descent, outputs.new_zeros(()).expand_as(outputs))
        bias = map(partial(Moving.of, descent), own[1:], (near or own)[1:])
        path = replace(self, parts=(coefficients, *bias), constant=None, along=None, times=None)
        if not near:
            return replace(path, received=outputs)
        times = Moving.of(descent, torch.ones_like(outputs[:, :1, :1]))
        along = outputs.sub_(self.received)
        return replace(path, constant=own[0] - near[0], along=along, times=times, rate=0.0)

    def taken(self, batch: SideBySide, x: Tensor) -> Tensor:  # noqa: ARG002
        """Row numbers (C, B) in the tables of all clients, stacked vertically."""
        return batch.rows - self.before

    def forward(self, taken: Tensor, bias: bool = True) -> Tensor:
        out = _rows(self.received, taken)
        if not self.parts[0].fixed:
            out.baddbmm_(_rows(self.products, taken), self.weight)
        if self.along is not None and self.times is not None:
            out.addcmul_(_rows(self.along, taken), self.times.now)
        out = out.add_(self.bias) if bias and self.bias is not None else out
        return out.to(self.examples[0].dtype)

    def back(self, slope: Tensor) -> Tensor:  # noqa: ARG002
        raise AssertionError("the slope by the inputs of a first layer is not needed")

    def adder(self, slope: Tensor, taken: Tensor) -> Adder:
        return partial(_add_rows, taken.flatten(), slope.flatten(0, 1))

    def put_weight(self, weight: Tensor) -> None:
        if self.parts[0].fixed:
            weight.zero_()
            return
        for into, rows, found in zip(weight, self.examples, self.weight, strict=True):
            of_rows = found[: len(rows)].t()
            into.copy_(matmul(of_rows, rows.to(of_rows.dtype)))
        if self.constant is not None and self.times is not None:
            weight.addcmul_(self.constant, self.times.now.to(weight.dtype))


def takes(descent: Descent) -> bool:
    """Whether steps change the weights only by products of slopes and examples."""
    return not sgd_of(descent).weight_decay


def _outputs(examples: Sequence[Tensor], weight: Tensor, into: Tensor) -> Tensor:
    """Fill zeros (C, n, out) with what weights (C, out, in) give for each client's examples."""
    for rows, matrix, outputs in zip(examples, weight, into, strict=True):
        outputs[: len(rows)] = matmul(rows.to(into.dtype), matrix.to(into.dtype).t())
    return into


def _rows(table: Tensor, taken: Tensor) -> Tensor:
    """Rows (C, B, ...) of tables (C, n, ...)."""
    return table.flatten(0, 1).index_select(0, taken.flatten()).view(*taken.shape, -1)


def _add_number(number: float, values: Tensor, old: float, new: float) -> None:
    values.mul_(old).add_(new * number)


def _add_rows(rows: Tensor, slopes: Tensor, values: Tensor, old: float, new: float) -> None:
    if old != 1:
        values.mul_(old)
    values.view(-1, values.shape[2]).index_add_(0, rows, slopes.to(values.dtype), alpha=new)
