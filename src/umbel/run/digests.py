"""Digests, which detect any difference of values, and fingerprints, which tolerate rounding."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from umbel.client.constants import bits
from umbel.client.layout import tensors_of
from umbel.client.net import Net
from umbel.data.splits import Split

CLOSE = 1e-5
"""Largest difference of fingerprints, relative to their length, that rounding explains."""


def split_digest(split: Split) -> str:
    raw = (bits(values).numpy().data for values in (split.x, split.y) if values.numel())
    steps = b"" if split.steps is None else split.steps.tobytes()
    return digest([*raw, split.offsets.tobytes(), steps])


def digest(parts: Iterable[Any]) -> str:
    total = hashlib.sha256()
    for part in parts:
        total.update(part)
    return total.hexdigest()[:32]


def structure(module: nn.Module) -> str:
    """Return the structure of a module as text, equal in every process."""
    # A `repr` may contain addresses, which differ in every process.
    return re.sub(r"0x[0-9a-f]+", "", repr(module))


def fingerprint(tensors: Iterable[Tensor]) -> tuple[float, ...]:
    """Length and three weighted sums of all values, whose last digits may differ."""
    squares, sums = 0.0, torch.zeros(3, dtype=torch.double)
    waves = torch.tensor([[0.1], [1.7], [2.9]], dtype=torch.double)
    for number, tensor in enumerate(tensors, start=1):
        values = tensor.detach().cpu().double().flatten()
        # Values that are not finite count as far-off numbers, so that they are noticed as well.
        values = values.nan_to_num(nan=2e3, posinf=1e3, neginf=-1e3)
        # sum_j sin(w (j + number)) v_j for three w: a value that moves to another place changes
        # them.
        places = torch.arange(len(values), dtype=torch.double) + number
        sums += ((waves * places).sin() * values).sum(1)
        squares += float((values**2).sum())
    return (squares**0.5, *sums.tolist())


def constants_print(net: Net, module: nn.Module) -> tuple[float, ...]:
    """Fingerprint of the tensors of the net's module that are neither in theta nor frozen."""
    entries = net.layout.weights + net.layout.rest
    inside = {*(entry.name for entry in entries), *net.modules.frozen}
    tensors = tensors_of(module).items()
    return fingerprint(tensor for name, tensor in tensors if name not in inside)


def near(one: Sequence[float], other: Sequence[float], close: float = CLOSE) -> bool:
    largest = max([1e-9, *map(abs, one)])
    pairs = zip(one, other, strict=False)
    return len(one) == len(other) and all(abs(a - b) <= close * largest for a, b in pairs)
