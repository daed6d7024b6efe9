"""Tensors as Flower's arrays: raw values, whose type and shape are checked before they are read."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Collection, Mapping

import torch
from flwr.app import Array, ArrayRecord, RecordDict
from torch import Tensor

from umbel.checks import check
from umbel.client.constants import bits
from umbel.flower.errors import RefusedError, abbreviated
from umbel.flower.fields import check_names

DTYPES = {
    "bool": torch.bool,
    "int32": torch.int32,
    "int64": torch.int64,
    "float16": torch.float16,
    "bfloat16": torch.bfloat16,
    "float32": torch.float32,
    "float64": torch.float64,
}

STYPE = f"umbel.raw.{sys.byteorder}"
"""Type of Flower's arrays that contain only raw values, in this byte order."""

MAX_ARRAYS = 64
MAX_DIMENSIONS = 8
MAX_VALUES = 2**40  # product of the dimensions, without those of length 0


def arrays(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    """Turn tensors by name into a record."""
    return ArrayRecord(array_dict={name: _array(name, t) for name, t in tensors.items()})


def _array(name: str, tensor: Tensor) -> Array:
    dtype = str(tensor.dtype).removeprefix("torch.")
    check(dtype in DTYPES, name, dtype, f"a type that messages carry: {', '.join(DTYPES)}")
    data = bits(tensor).numpy().tobytes()
    return Array(dtype=dtype, shape=tuple(tensor.shape), stype=STYPE, data=data)


def tensors(
    content: RecordDict, record: str, expected: Collection[str] | None, max_bytes: int
) -> dict[str, Tensor]:
    """The arrays of a record, of these names or any, as views of its bytes: not to be written to.

    Raises `RefusedError` for what is too large, or no plain array.
    """
    arrays = content.get(record)
    if not isinstance(arrays, ArrayRecord):
        raise RefusedError(f"{record}: missing")
    check_names(record, list(arrays), MAX_ARRAYS)
    if expected is not None and set(arrays) != set(expected):
        raise RefusedError(f"{record} {abbreviated(sorted(arrays))} instead of {sorted(expected)}")
    size = sum(len(array.data) for array in arrays.values())
    if size > max_bytes:
        raise RefusedError(f"{record}: {size} bytes, more than the {max_bytes} allowed")
    return {name: _tensor(name, array) for name, array in arrays.items()}


def _tensor(name: str, array: Array) -> Tensor:
    if array.stype != STYPE:
        raise RefusedError(
            f"{name}: serialised as {abbreviated(array.stype)}, and not as {STYPE!r}"
        )
    dtype, shape = DTYPES.get(array.dtype), tuple(array.shape)
    if dtype is None:
        raise RefusedError(
            f"{name}: type {abbreviated(array.dtype)} is not one of {', '.join(DTYPES)}"
        )
    plain = len(shape) <= MAX_DIMENSIONS and all(type(n) is int and n >= 0 for n in shape)
    if not plain or math.prod(n or 1 for n in shape) > MAX_VALUES:
        raise RefusedError(f"{name}: {abbreviated(shape)} is not the shape of an array")
    if math.prod(shape) * dtype.itemsize != len(array.data):
        raise RefusedError(f"{name}: {len(array.data)} bytes for shape {shape} of {array.dtype}")
    if not array.data:
        return torch.empty(shape, dtype=dtype)
    if dtype is torch.bool and max(array.data) > 1:
        raise RefusedError(f"{name}: bytes that are neither true nor false")
    # Type, shape and size agree: only now are the bytes read as numbers.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given buffer is not writable")
        return torch.frombuffer(array.data, dtype=dtype).reshape(shape)
