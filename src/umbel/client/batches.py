"""The examples of a client's work, batch by batch."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umbel.summary import in_short

Plan: TypeAlias = NDArray[np.int64]
"""Mini-batches as positions among a client's examples: (S steps, batch size), -1 for padding."""

SLICE = 256
"""Work on all examples goes through slices of at most this many, to bound its memory."""


IGNORED = -100
"""Label that does not count if examples have many labels, such as padding of a sequence."""


@dataclass(frozen=True)
class Batch:
    """Some of a client's examples, on which a work computes a loss or a gradient.

    Means are over examples or, if examples have many labels, over the labels that count.
    """

    x: Tensor  #: (B, ...) inputs
    y: Tensor  #: (B, ...) targets
    keep: Tensor | None = None  #: (B,) bool, False for padding; None: every row is an example
    may_be_empty: bool = False  #: whether the batch may consist only of padding
    #: numbers of rows of several clients (C,), one after another: sums are then (C,); None: one
    clients: Sequence[int] | None = None

    __repr__ = in_short

    @property
    def counts(self) -> Tensor | None:
        """(B,) the weight of each row before normalisation; None: all count the same."""
        labels = num_labels(self.y)
        if labels is None or self.keep is None:
            return self.keep if labels is None else labels
        return labels.where(self.keep, 0)

    def total(self, values: Tensor) -> Tensor:
        """Sum of a value per example (B,), weighted by `counts`."""
        counts = self.counts
        if counts is not None:
            if counts.dtype != torch.bool:
                values = values * counts.to(values.dtype)
            values = values.where(counts > 0, 0)
        return self._sum(values)

    def mean(self, values: Tensor) -> Tensor:
        """Mean of a value per example (B,)."""
        counts = self.counts
        if counts is None:
            return values.mean()
        sums = self.total(values.to(wide(values.dtype)))
        return (sums / counts.sum().clamp(min=1)).to(values.dtype)

    def unweighted(self, values: Tensor) -> Tensor:
        """Values (B',) of the rows that count, from values (B,) of all rows.

        Their plain mean is `mean`, and the usual standard error of it is that of `mean`.
        """
        counts = self.counts
        if counts is None:
            return values
        mean, weights = self.mean(values), counts[counts > 0].to(values.dtype)
        return mean + weights / weights.mean() * (values[counts > 0] - mean)

    def shares(self, dtype: torch.dtype) -> Tensor:
        """The weight (B,) of each row in a mean; 0 for padding."""
        if self.counts is None:
            size = len(self.x)
            return torch.full((size,), 1 / size, dtype=dtype, device=self.x.device)
        counts = self.counts.to(wide(dtype))
        return (counts / counts.sum().clamp(min=1)).to(dtype)

    def size(self) -> Tensor:
        """The weight of the batch: its number of examples or labels, as a float."""
        if self.counts is None:
            rows = float(len(self.x)) if self.clients is None else self.clients
            return torch.tensor(rows, dtype=torch.float64, device=self.x.device)
        return self._sum(self.counts).double()

    def _sum(self, values: Tensor) -> Tensor:
        """The sum () of values (B,), or the sums (C,) of each client's."""
        if self.clients is None:
            return values.sum()
        return torch.stack([own.sum() for own in torch.split(values, list(self.clients))])

    def unless_empty(self, new: Sequence[Tensor], old: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """`new`, or `old` if the batch is only padding, so that its step has no effect."""
        if not self.may_be_empty or self.keep is None:
            return tuple(new)
        happened = self.keep.any()
        return tuple(torch.where(happened, n, o) for n, o in zip(new, old, strict=True))


def wide(dtype: torch.dtype) -> torch.dtype:
    """A type for counts, sums and large values, at least single: float16 ends at 65,504."""
    return torch.promote_types(dtype, torch.float32)


@dataclass(frozen=True)
class Step:
    """Positions of the examples of one batch in the storage of a shard."""

    rows: Tensor  # (B,) int64; a negative row is padding, replaced by the example ~row
    padded: bool = False
    may_be_empty: bool = False
    clients: Sequence[int] | None = None  # as in a `Batch`

    __repr__ = in_short


@dataclass(frozen=True)
class Steps:
    """A sequence of mini-batches."""

    rows: Tensor  # (S, B) int64, negative for padding as in a `Step`
    steps: Sequence[Step]

    __repr__ = in_short


@dataclass(frozen=True)
class Shard:
    """One client's examples for a work: rows of a tensor that is shared with other clients.

    For a work that `joins`, it may hold the examples of several clients, one after another.
    """

    x: Tensor  #: (total, ...) inputs of the storage
    y: Tensor  #: (total, ...) targets of the storage
    num_examples: Tensor  #: () int64, number of this client's examples; (C,) of several clients
    planned: Steps  #: the mini-batches that the work planned
    in_order: Sequence[Step]  #: positions of all examples, each once

    __repr__ = in_short

    def size(self) -> Tensor:
        """The weight of the shard: its number of examples or labels, as a float."""
        if num_labels(self.y) is None:
            return self.num_examples.double()
        none = torch.zeros((), dtype=torch.float64, device=self.x.device)
        return sum((batch.size() for batch in self.everything()), none)

    def batches(self) -> Iterator[Batch]:
        """The mini-batches that the work planned, in order."""
        return map(self._batch, self.planned.steps)

    def everything(self) -> Iterator[Batch]:
        """Every example once, in slices."""
        return map(self._batch, self.in_order)

    def places(self, rows: Tensor) -> Tensor:
        """The places of rows of the storage among this client's examples."""
        return torch.where(rows >= 0, rows, ~rows) - self.in_order[0].rows[0]

    def whole(self) -> Batch:
        """Every example once, in one batch, without a limit on memory."""
        rows = torch.cat([step.rows for step in self.in_order])
        return self._batch(Step(rows, any(step.padded for step in self.in_order)))

    def _batch(self, step: Step) -> Batch:
        if not step.padded:
            return Batch(self.x[step.rows], self.y[step.rows], clients=step.clients)
        keep = step.rows >= 0
        rows = torch.where(keep, step.rows, ~step.rows)
        return Batch(self.x[rows], self.y[rows], keep, step.may_be_empty)


def num_labels(y: Tensor) -> Tensor | None:
    """(B,) number of labels that count in each example; None if each has one, or has targets."""
    if y.is_floating_point() or y.dim() < 2:
        return None
    return (y != IGNORED).flatten(1).sum(1)


def in_order(num_examples: int) -> Plan:
    """Every example once, in slices of at most `SLICE`."""
    width = min(SLICE, max(num_examples, 1))
    steps = -(-num_examples // width)
    plan = np.full(steps * width, -1, dtype=np.int64)
    plan[:num_examples] = np.arange(num_examples)
    return plan.reshape(steps, width)
