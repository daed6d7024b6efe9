"""Tensors of any types in one array, for processes that share its memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umbel.client.constants import bits
from umbel.engines.alignment import ALIGNED
from umbel.summary import in_short


@dataclass(frozen=True)
class Packed:
    """Each tensor begins at a multiple of `ALIGNED` bytes."""

    data: NDArray[np.uint8]
    entries: Mapping[str, tuple[int, torch.dtype, tuple[int, ...]]]  # where it begins, by name

    __repr__ = in_short

    @classmethod
    def of(cls, tensors: Mapping[str, Tensor]) -> Packed:
        """A copy of these tensors."""
        entries: dict[str, Any] = {}
        end = 0
        for name, tensor in tensors.items():
            entries[name] = end, tensor.dtype, tuple(tensor.shape)
            end += -(-tensor.nbytes // ALIGNED) * ALIGNED
        data = np.zeros(end, dtype=np.uint8)
        for name, tensor in tensors.items():
            begin = entries[name][0]
            data[begin : begin + tensor.nbytes] = bits(tensor).numpy()
        return cls(data, entries)

    def tensors(self, data: Tensor) -> dict[str, Tensor]:
        """The tensors again, as views of `data`, which holds the bytes."""
        found = {}
        for name, (begin, dtype, shape) in self.entries.items():
            part = data[begin : begin + prod(shape) * dtype.itemsize]
            found[name] = part.view(dtype).view(shape)
        return found
