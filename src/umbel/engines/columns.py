"""Reply columns, filled as clients finish."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from umbel.engines.validation import assemble
from umbel.flow import Replies, Request


class Columns:
    """Tensors (N, ...) made when the first rows arrive, so that no row is ever held twice."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.tensors: dict[str, Tensor] = {}

    def put(self, positions: Tensor, rows: Mapping[str, Tensor]) -> None:
        """Store rows (len(positions), ...) of every column at their positions."""
        first, count, num_rows = int(positions[0]), len(positions), len(self.request.clients)
        in_order = torch.equal(positions, torch.arange(first, first + count))
        for name, values in rows.items():
            column = values.to("cpu")
            if in_order and count == num_rows:
                self.tensors[name] = column
                continue
            if name not in self.tensors:
                self.tensors[name] = column.new_empty(num_rows, *column.shape[1:])
            if in_order:
                self.tensors[name][first : first + count] = column
            else:
                self.tensors[name].index_copy_(0, positions, column)

    def replies(self) -> Replies:
        """Return everybody's replies; those of nobody have all columns, too."""
        if not len(self.request.clients):
            return assemble(self.request, [])
        return Replies(self.request.clients, self.tensors)
