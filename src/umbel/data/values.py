"""Conversion of one client's inputs or targets, in any supported form, to a tensor.

Messages name the client, the row and the column, but never a value: examples are private.
"""

from __future__ import annotations

from math import isfinite
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umbel.checks import LARGEST, check
from umbel.data import dataframes
from umbel.data.objects import PAD, check_even, check_gaps, numbers_of, refuse, refuse_row

CODE_INPUTS = "write words and dates as numbers, the same for every client, or leave them out"
CODE_LABELS = (
    "number the classes once for all clients: with a list `classes` of their names, "
    "y = [classes.index(name) for name in y]"
)

USUAL = frozenset(
    {torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.bool}
    | {torch.int64, torch.int32, torch.int16, torch.int8}
    | {torch.uint64, torch.uint32, torch.uint16, torch.uint8}
)
"""Types that torch can compute with; others, such as 8-bit floats, can only be stored."""

STORED = {
    **dict.fromkeys((torch.float64, torch.float32, torch.bfloat16, torch.float16), "float"),
    **dict.fromkeys((torch.uint8, torch.uint16), "bytes"),
    torch.bool: "bool",
}
"""How values of these types are written, in the words of `conventions`; others are whole."""


AS_FLOATS = (torch.uint8, torch.bool)
"""Types of inputs that become floats, which take four times the memory, when clients are joined."""


def inputs(values: object, client: str) -> tuple[Tensor, str]:
    """Inputs (n, ...): floats, or 64-bit integers, which embeddings need; and how they came.

    Columns of tables become floats, and `AS_FLOATS` are to become floats. Floats (n,) become
    (n, 1), as layers need it. Raises `UsageError` for values that are not finite numbers.
    """
    tensor = _tensor(values, f"client {client}: x", CODE_INPUTS)
    stored = "table" if dataframes.is_table(values) else STORED.get(tensor.dtype, "whole")
    tensor = tensor.float() if stored == "table" else tensor
    if not (tensor.is_floating_point() or tensor.dtype in AS_FLOATS):
        return tensor.long(), stored
    _check_finite(tensor, f"client {client}: x")
    return tensor[:, None] if tensor.dim() == 1 else tensor, stored


def targets(values: object, client: str) -> Tensor:
    """Targets (n, ...): floats, or class labels as 64-bit integers.

    Labels (n, 1) become (n,). Raises `UsageError` for values that are not finite numbers.
    """
    tensor = _tensor(values, f"client {client}: y", CODE_LABELS)
    if tensor.is_floating_point():
        _check_finite(tensor, f"client {client}: y")
        return tensor
    tensor = tensor.long()
    return tensor.flatten() if tensor.dim() == 2 and tensor.shape[1] == 1 else tensor


def _check_finite(tensor: Tensor, what: str) -> None:
    # Both ends are NaN if any value is. They need no memory, which would stay with the process.
    if not tensor.numel() or all(map(isfinite, tensor.aminmax())):
        return
    place = torch.nonzero(~tensor.isfinite())[0].tolist()
    column = f", column {place[1]}" if len(place) == 2 else ""
    kind = "NaN" if bool(tensor[tuple(place)].isnan()) else "infinite"
    refuse_row(f"{what}{column}", place[0] if place else 0, kind)


def _tensor(values: object, what: str, advice: str) -> Tensor:
    if isinstance(values, Tensor):
        check(values.layout == torch.strided, what, str(values.layout), "dense: write x.to_dense()")
        check(not values.is_nested, what, "a nested tensor", f"one block of numbers; {PAD}")
        check(not values.is_meta, what, "a tensor on the meta device", "one that holds values")
        check(not values.is_complex(), what, str(values.dtype), "a type of real numbers")
        check(
            values.dtype in USUAL, what, str(values.dtype), "a type that layers take; call .float()"
        )
        tensor = values.detach().cpu()  # files, splits and checks are NumPy's
        wraps = values.dtype == torch.uint64 and bool((tensor.long() < 0).any())
        check(not wraps, what, "torch.uint64 beyond 2^63 - 1", "a type of numbers")
        return tensor
    if isinstance(values, list | tuple) and any(isinstance(entry, Tensor) for entry in values):
        tensors = [_tensor(entry, what, advice) for entry in values]
        check_even([tuple(tensor.shape) for tensor in tensors], what)
        return torch.stack(tensors)
    array = _array(values, what, advice)
    # Reversed and read-only arrays are copied: torch can't use the former, and may write the
    # latter.
    plain = array.flags.writeable and all(stride >= 0 for stride in array.strides)
    try:
        tensor = torch.as_tensor(array if plain else array.copy())
    except (TypeError, ValueError, RuntimeError):
        refuse(what, str(array.dtype), advice)
    check(not tensor.is_complex(), what, str(tensor.dtype), "a type of real numbers")
    return tensor


def _array(values: object, what: str, advice: str) -> NDArray[Any]:
    if dataframes.is_table(values):
        return dataframes.numbers(values, what, advice)
    kind = type(values).__name__
    check(not hasattr(values, "toarray"), what, kind, "dense: write x.toarray()")
    check_gaps(values, what)
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError):
        if isinstance(values, list | tuple):
            check_even([np.shape(entry) for entry in values], what)
        refuse(what, kind, advice)
    if array.dtype == object:
        return numbers_of(array, what, advice)
    if array.dtype.kind not in "biufc":
        refuse(what, str(array.dtype), advice)
    if array.dtype.kind == "u" and array.size and int(array.max()) > LARGEST:
        refuse(what, f"{array.dtype} beyond 2^63 - 1", "")
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
