"""Reply columns, filled as clients finish."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from math import prod

import torch
from torch import Tensor

from umbel.engines.validation import assemble, models_type, promises
from umbel.flow import Replies, Request


class Columns:
    """Tensors (N, ...) made when the first rows arrive, so that no row is ever held twice."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.tensors: dict[str, Tensor] = {}

    @classmethod
    def shared(cls, request: Request) -> Columns:
        """Columns as they are promised, in memory that forked processes write into, too."""
        columns = cls(request)
        for name, promise in promises(request).items():
            shape = (len(request.clients), *promise.shape)
            columns.tensors[name] = shared(shape, promise.dtype or models_type(request))
        return columns

    def put(self, positions: Tensor, rows: Mapping[str, Tensor]) -> None:
        """Store rows (len(positions), ...) of every column at their positions."""
        first, count, num_rows = int(positions[0]), len(positions), len(self.request.clients)
        in_order = torch.equal(positions, torch.arange(first, first + count))
        for name, values in rows.items():
            column = values.to("cpu")
            if name not in self.tensors:
                if in_order and count == num_rows:
                    self.tensors[name] = column
                    continue
                self.tensors[name] = column.new_empty(num_rows, *column.shape[1:])
            if in_order:
                self.tensors[name][first : first + count] = column
            else:
                self.tensors[name][positions] = column.to(self.tensors[name].dtype)

    def replies(self) -> Replies:
        """Return everybody's replies; those of nobody have all columns, too."""
        if not len(self.request.clients):
            return assemble(self.request, [])
        return Replies(self.request.clients, self.tensors)


def shared(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor of zeros that stays the same memory in processes that are forked from this one.

    It has no name and no file: whatever ends the processes, nothing of it is left.
    """
    if not prod(shape):
        return torch.empty(shape, dtype=dtype)
    memory = mmap.mmap(-1, prod(shape) * dtype.itemsize)
    return torch.frombuffer(memory, dtype=dtype).view(shape)
