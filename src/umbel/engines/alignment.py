"""Alignment of tensors in memory: the order in which products are summed depends on it."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor

ALIGNED = 64
"""PyTorch's own tensors begin at multiples of this many bytes."""


def aligned(tensor: Tensor) -> Tensor:
    """Copy a tensor to an aligned address, unless it has one already.

    Tensors that were read from a file or a message may begin anywhere. Results that are computed
    with them would differ in the last bits.
    """
    return tensor.clone() if tensor.data_ptr() % ALIGNED else tensor


def tensor_of(array: NDArray[Any]) -> Tensor:
    """Make a tensor of an array, which must not be written to.

    It shares the array's memory, or is a copy at an aligned address.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")
        tensor = torch.from_numpy(array)
    return aligned(tensor)
