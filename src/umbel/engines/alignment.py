"""Where tensors begin in memory: products are summed in an order that depends on it."""

from __future__ import annotations

from torch import Tensor

ALIGNED = 64
"""Bytes, at a multiple of which PyTorch has tensors of its own begin."""


def aligned(tensor: Tensor) -> Tensor:
    """The same values where tensors of PyTorch's own begin.

    Those that are read from a file or a message lie anywhere, and would give other last bits than
    the tensors that they are to stand for.
    """
    return tensor.clone() if tensor.data_ptr() % ALIGNED else tensor
