"""Alignment of tensors in memory: the order in which products are summed depends on it."""

from __future__ import annotations

from torch import Tensor

ALIGNED = 64
"""PyTorch's own tensors begin at multiples of this many bytes."""


def aligned(tensor: Tensor) -> Tensor:
    """Copy a tensor to an aligned address, unless it has one already.

    Tensors that were read from a file or a message may begin anywhere. Results that are computed
    with them would differ in the last bits.
    """
    return tensor.clone() if tensor.data_ptr() % ALIGNED else tensor
