"""Reply columns, filled as clients finish."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor


class Columns:
    """Tensors (N, ...) made when the first rows arrive, so that no row is ever held twice."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self.tensors: dict[str, Tensor] = {}

    def put(self, positions: Tensor, rows: Mapping[str, Tensor]) -> None:
        """Store rows (len(positions), ...) of every column at their positions."""
        first, count = int(positions[0]), len(positions)
        in_order = torch.equal(positions, torch.arange(first, first + count))
        for name, values in rows.items():
            found = values.to("cpu")
            if in_order and count == self.num_rows:
                self.tensors[name] = found
                continue
            if name not in self.tensors:
                self.tensors[name] = found.new_empty(self.num_rows, *found.shape[1:])
            if in_order:
                self.tensors[name][first : first + count] = found
            else:
                self.tensors[name].index_copy_(0, positions, found)
