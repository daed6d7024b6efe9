"""Buffers of a module that are not in theta, and that all models share."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from umbel.client.layout import Layout


def scratch_of(module: nn.Module, layout: Layout) -> dict[str, Tensor]:
    """Those that a pass may write in: what is not saved, and the counters of normalisations.

    Each pass has copies of its own, so that nothing goes from one client to another.
    """
    saved = set(module.state_dict(keep_vars=True))
    return {
        name: buffer
        for name, buffer in _outside(module, layout).items()
        if name not in saved or name.rpartition(".")[2] == "num_batches_tracked"
    }


def constants_of(module: nn.Module, layout: Layout) -> dict[str, Tensor]:
    """All others, such as masks and tables of positions, which no pass may change."""
    scratch = scratch_of(module, layout)
    return {n: buffer for n, buffer in _outside(module, layout).items() if n not in scratch}


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same bits: by these NaN equals itself."""
    bits = (tensor.contiguous().flatten().view(torch.uint8) for tensor in (one, other))
    return torch.equal(*bits)


def _outside(module: nn.Module, layout: Layout) -> dict[str, Tensor]:
    inside = {entry.name for entry in layout.rest}
    return {name: b for name, b in module.named_buffers() if name not in inside}
