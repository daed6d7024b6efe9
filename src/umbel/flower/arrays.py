"""Tensors as Flower's arrays: plain NumPy arrays, checked before they are read."""

from __future__ import annotations

import io
import math
from collections.abc import Mapping

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, RecordDict
from torch import Tensor

from umbel.checks import check

DTYPES = {
    "float16": torch.float16,
    "float32": torch.float32,
    "float64": torch.float64,
    "int32": torch.int32,
    "int64": torch.int64,
    "bool": torch.bool,
}

HEADER_BYTES = 1024
"""What NumPy's format adds to the values of an array, at most."""


class RefusedError(ValueError):
    """What came in can't be used; the message says why."""


def arrays(tensors: Mapping[str, Tensor]) -> ArrayRecord:
    """Tensors by name, as a record."""
    return ArrayRecord(array_dict={name: _array(name, t) for name, t in tensors.items()})


def _array(name: str, tensor: Tensor) -> Array:
    known = tensor.dtype in DTYPES.values()
    check(known, name, str(tensor.dtype), f"a type that Flower carries: {', '.join(DTYPES)}")
    return Array(tensor.detach().cpu().contiguous().numpy())


def tensors(content: RecordDict, record: str, max_bytes: int) -> dict[str, Tensor]:
    """The arrays of a record. Raises `RefusedError` for what is too large, or no plain array."""
    if record not in content.array_records:
        raise RefusedError(f"{record}: missing")
    arrays = content.array_records[record]
    size = sum(len(array.data) for array in arrays.values())
    if size > max_bytes:
        raise RefusedError(f"{record}: {size} bytes, more than the {max_bytes} allowed")
    return {str(name): _tensor(str(name), array) for name, array in arrays.items()}


def _tensor(name: str, array: Array) -> Tensor:
    if array.stype != "numpy.ndarray":
        raise RefusedError(f"{name}: serialised as {array.stype!r}, not as a NumPy array")
    dtype = DTYPES.get(array.dtype)
    if dtype is None:
        raise RefusedError(f"{name}: type {array.dtype!r} is not one of {', '.join(DTYPES)}")
    declared = math.prod(array.shape) * dtype.itemsize
    if min(array.shape, default=0) < 0 or declared > len(array.data):
        raise RefusedError(f"{name}: {len(array.data)} bytes for shape {tuple(array.shape)}")
    try:
        values = np.load(io.BytesIO(array.data), allow_pickle=False, max_header_size=HEADER_BYTES)
    except (ValueError, EOFError, OSError, MemoryError, SyntaxError) as error:
        raise RefusedError(f"{name}: not a NumPy array: {str(error)[:200]}") from None
    if not isinstance(values, np.ndarray) or values.dtype.name != array.dtype:
        raise RefusedError(f"{name}: not the {array.dtype} that it says")
    tensor = torch.from_numpy(np.ascontiguousarray(values).reshape(values.shape))
    if tensor.is_floating_point() and not tensor.isfinite().all():
        raise RefusedError(f"{name}: not finite everywhere")
    return tensor
