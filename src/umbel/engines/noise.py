"""Gaussian noise from a key of 256 bits: without the key it can't be told from true noise."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

BLOCK = 2**16
"""Values that are drawn at a time, so that memory is bounded however large a model is."""


def key_of(seed: int) -> bytes:
    """A key for a simulation, which has no secret but its seed."""
    return hashlib.sha256(seed.to_bytes(8, "big")).digest()


def standard_normal(key: bytes, count: int) -> Iterator[Tensor]:
    """`count` standard normal values, in blocks, double precision: quantiles of SHAKE-256's output.

    PyTorch's own generator uses only 32 bits of its seed, so an attacker who saw some noise could
    try all seeds.
    """
    for number, begin in enumerate(range(0, count, BLOCK)):
        stream = hashlib.shake_256(key + number.to_bytes(8, "big"))
        words = np.frombuffer(stream.digest(8 * min(BLOCK, count - begin)), "<u8")
        # Half a step keeps 52 bits off 0 and 1, whose quantiles are infinite.
        uniform = ((words >> np.uint64(12)) + 0.5) * 2.0**-52
        yield torch.special.ndtri(torch.from_numpy(uniform))
