"""Allowed values in the fields of a state: a checkpoint gives them back unchanged."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from umbel.algorithms.base import State

SIMPLE = (str, int, float, bool, type(None), np.float64, np.str_)
"""Types of values that JSON has, and two that read back as an equal `float` or `str`.

Others that derive from them, such as an `Enum` of strings, would read back as another type.
"""

TUPLES = (tuple, torch.Size)
"""Types that read back as an equal tuple."""

WRITTEN = {
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.complex64, torch.bool),
    *(torch.int64, torch.int32, torch.int16, torch.int8, torch.float8_e4m3fn, torch.float8_e5m2),
    *(torch.uint64, torch.uint32, torch.uint16, torch.uint8),
}
"""Types of tensors that safetensors has."""

LONGEST_NUMBER_BITS = 4_000
"""Largest number of bits of a whole number: Python refuses to write much larger ones."""


def can_hold(value: object) -> bool:
    """Return True for a value that reads back unchanged: tensors, tuples of them, JSON's types.

    Tuples read back as tuples outside of lists and dicts, and as lists inside.
    """
    if holds_tensors(value):
        return all(map(_is_written, value))  # type: ignore[call-overload]
    if type(value) in TUPLES:
        return _is_nested(value)
    return _is_written(value) if isinstance(value, Tensor) else _is_json(value)


def _is_written(tensor: Tensor) -> bool:
    # safetensors writes dense tensors only, and a meta tensor has no values.
    dense = tensor.layout == torch.strided and not tensor.is_meta
    return dense and tensor.dtype in WRITTEN


def _is_nested(value: object) -> bool:
    """Return True for simple values in tuples, at any depth."""
    if isinstance(value, tuple) and type(value) in TUPLES:
        return all(map(_is_nested, value))
    return _is_simple(value)


def _is_simple(value: object) -> bool:
    short = not isinstance(value, int) or value.bit_length() <= LONGEST_NUMBER_BITS
    return type(value) in SIMPLE and short


def _is_json(value: object) -> bool:
    if type(value) is dict:
        return all(type(key) is str and _is_json(entry) for key, entry in value.items())
    if type(value) is list:
        return all(map(_is_json, value))
    return _is_simple(value)


def within(state: State) -> tuple[str, tuple[State, ...]]:
    """Return the field of a state that holds inner states, and these; "" and () without any."""
    return state.states_in, getattr(state, state.states_in) if state.states_in else ()


def holds_tensors(value: Any) -> bool:
    """Return True for a tuple of tensors that is not empty."""
    some = type(value) is tuple and len(value) > 0
    return some and all(isinstance(entry, Tensor) for entry in value)
