"""The mini-batches of many clients side by side, with as little padding as possible."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from umbel.client.batches import wide
from umbel.summary import in_short


@dataclass(frozen=True)
class SideBySide:
    """One mini-batch of each of the first c clients."""

    rows: Tensor  # (c, B) rows of the examples in the storage
    shares: Tensor  # (c, B), or (1, 1) if all are equal: weight of an example in its batch's mean

    __repr__ = in_short

    def inputs(self, x: Tensor) -> Tensor:
        """Return the flat inputs (c, B, D) from the storage x."""
        return x.index_select(0, self.rows.flatten()).view(*self.rows.shape, -1)

    def labels(self, y: Tensor) -> Tensor:
        """Return the labels (c, B, ...) from the storage y."""
        return y.index_select(0, self.rows.flatten()).view(*self.rows.shape, *y.shape[1:])


@dataclass(frozen=True)
class BatchSchedule:
    """Clients in descending order of mini-batches, so that the first ones are at work."""

    order: Tensor | None  # (C,) order of the clients; None: as given
    rows: Tensor  # (S, C, B), with padding replaced by other examples
    keep: Tensor | None  # (S, C, B) False for padding; None: there is none
    at_work: list[int]  # number of clients with a mini-batch in each step
    width: list[int]  # number of columns in use in each step
    full: list[bool]  # whether these columns contain no padding
    factors: Tensor | None = None  # (S, C, B) of the examples' losses; None: all are 1

    __repr__ = in_short

    @classmethod
    def of(cls, rows: Tensor, factors: Tensor | None = None) -> BatchSchedule:
        """Build it from rows (C, S, B); negative rows are padding, replaced by ~row."""
        keep, order = rows >= 0, None
        clients, steps, columns = rows.shape
        if keep.all():
            by_step = rows.transpose(0, 1).contiguous()
            factors = None if factors is None else factors.transpose(0, 1)
            always = [clients] * steps, [columns] * steps, [True] * steps
            return cls(None, by_step, None, *always, factors)
        happens = keep.any(2)
        order = happens.sum(1).argsort(dim=0, descending=True, stable=True)
        # A client's mini-batches keep their order; empty ones go to the end.
        sequence = happens[order].int().argsort(dim=1, descending=True, stable=True)
        sequence = sequence[..., None].expand_as(rows)
        rows = rows[order].gather(1, sequence).transpose(0, 1).contiguous()
        if factors is not None:
            factors = factors[order].gather(1, sequence).transpose(0, 1)
        keep = rows >= 0
        used = keep.any(1) * torch.arange(1, columns + 1, device=rows.device)
        at_work, width = keep.any(2).sum(1).tolist(), used.amax(1).tolist()
        kept = keep.flatten(1).sum(1).tolist()
        full = [c * w == k for c, w, k in zip(at_work, width, kept, strict=True)]
        in_order = torch.equal(order, torch.arange(clients, device=order.device))
        rows = torch.where(keep, rows, ~rows)
        return cls(None if in_order else order, rows, keep, at_work, width, full, factors)

    def batches(self, dtype: torch.dtype) -> Iterator[SideBySide]:
        """The mini-batches of each step, with shares of this type."""
        for s, (c, w) in enumerate(zip(self.at_work, self.width, strict=True)):
            if c == 0:
                return
            rows = self.rows[s, :c, :w]
            if self.keep is None or self.full[s]:
                shares = torch.full((1, 1), 1 / w, dtype=dtype, device=rows.device)
            else:
                keep = self.keep[s, :c, :w].to(wide(dtype))
                shares = (keep / keep.sum(1, keepdim=True)).to(dtype)
            if self.factors is not None:
                shares = shares * self.factors[s, :c, :w]
            yield SideBySide(rows, shares)

    def arranged(self, values: Tensor) -> Tensor:
        """Rows (C, ...), one per client, in the order of the schedule."""
        return values if self.order is None else values[self.order]

    def restored(self, values: Tensor) -> Tensor:
        """Rows that are in the order of the schedule, put back in the order of the clients."""
        return values if self.order is None else values[self.order.argsort()]
