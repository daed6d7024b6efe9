"""Reply columns, filled row by row as clients finish."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor


class Columns:
    """Tensors (N, ...) made when the first rows arrive, so that no row is ever held twice."""

    def __init__(self, num_rows: int) -> None:
        self.num_rows = num_rows
        self.tensors: dict[str, Tensor] = {}

    def put(self, positions: Tensor, rows: Mapping[str, Tensor]) -> None:
        """Store rows (len(positions), ...) of every column at their positions."""
        for name, values in rows.items():
            if name not in self.tensors:
                shape = (self.num_rows, *values.shape[1:])
                self.tensors[name] = values.new_empty(shape, device="cpu")
            self.tensors[name][positions] = values.to("cpu")
