"""The constants of a module: tensors that are not in theta, shared by all models."""

from __future__ import annotations

import copy
import hashlib
import zlib
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import is_parametrized

from umbel.checks import UsageError, first_line
from umbel.client.layout import Layout, persistent_buffers
from umbel.client.process_locks import SWAPPING

COMPUTED = (torch.float32, torch.float64, torch.int64, torch.bool)
"""Types of buffers that a module computes, such as tables of positions. Their last digits may
differ between machines. Buffers of other types hold quantised values."""

KEPT = (
    "let forward keep no tensor on the module, as self.h = ... does, but in a variable of its own; "
    "use nn.utils.parametrizations.weight_norm in place of nn.utils.weight_norm, call "
    "nn.utils.prune.remove after pruning, and "
)
"""Advice for a module with tensors that can't be copied."""


def scratch_of(module: nn.Module, layout: Layout) -> dict[str, Tensor]:
    """Buffers that a pass may change: unsaved ones, and the counters of normalisation layers.

    Each pass has its own copies, so that no values pass from one client to another.
    """
    saved = persistent_buffers(module)
    return {
        name: buffer
        for name, buffer in _buffers(module, layout).items()
        if name not in saved or name.rpartition(".")[2] == "num_batches_tracked"
    }


def constants_of(module: nn.Module, layout: Layout) -> dict[str, Tensor]:
    """The tensors that no pass changes: frozen parameters, and buffers such as position tables."""
    scratch = scratch_of(module, layout)
    buffers = {n: b for n, b in _buffers(module, layout).items() if n not in scratch}
    return {**_untrained(module), **buffers}


def frozen_of(module: nn.Module, layout: Layout) -> dict[str, Tensor]:
    """The constants that can't be computed again: frozen parameters, and quantised buffers."""
    constants = constants_of(module, layout)
    parameters = _untrained(module)
    return {
        name: tensor
        for name, tensor in constants.items()
        if name in parameters or tensor.dtype not in COMPUTED
    }


def twin(module: nn.Module, layout: Layout) -> nn.Module:
    """A copy of a module that shares the memory of its constants.

    Raises `UsageError` if torch can't copy it.
    """
    shared = {}
    for constant in constants_of(module, layout).values():
        plain = type(constant) is nn.Parameter
        # A separate parameter object: moving or casting a module changes its parameters in place.
        twin = nn.Parameter(constant.detach(), requires_grad=False) if plain else constant
        shared[id(constant)] = twin
    try:
        return copied(module, shared)
    except (RuntimeError, TypeError) as error:
        said = first_line(error)
        # Raised by tensors that can't be copied, and by some locks.
        of_tensors = KEPT if isinstance(error, RuntimeError) else ""
        raise UsageError(
            f"Net: {type(module).__name__} can't be copied, but every client trains a copy: "
            f"{of_tensors}keep files and locks out of it ({said})"
        ) from error


def copied(module: nn.Module, shared: Mapping[int, Tensor] | None = None) -> nn.Module:
    """A deep copy of a module, in which tensors with these ids are replaced by those given."""
    memo: dict[int, Any] = dict(shared or {})
    with SWAPPING.lock:
        for part in module.modules():
            # It keeps the weights of its last pass, which can't be copied if they were computed,
            # as with weight normalisation. A pass computes them anew.
            if isinstance(part, nn.RNNBase) and is_parametrized(part):
                memo[id(part._flat_weights)] = []
        new = copy.deepcopy(module, memo)
    for parameter in new.parameters():
        if not parameter.is_leaf:  # torch.jit copies by an operation that has a gradient
            parameter.detach_().requires_grad_()
    return new


def digest_of(tensors: dict[str, Tensor]) -> str:
    """A digest that is equal for equal names, types, shapes and bits; "" for no tensors."""
    if not tensors:
        return ""
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if tensor.numel():
            total.update(bits(tensor).numpy().data)
    return total.hexdigest()


def written_out(tensor: Tensor) -> Tensor:
    """The tensor in contiguous memory, with pending conjugation or negation applied."""
    return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()


def bits(tensor: Tensor) -> Tensor:
    """The bytes of a tensor, whatever its type: (n,) uint8."""
    # A tensor of one value may have any stride, even if `is_contiguous` is true.
    flat = written_out(tensor).as_strided((tensor.numel(),), (1,))
    return flat.view(torch.uint8)


def checksum(tensor: Tensor) -> int:
    """A number that is almost surely another one after any of the tensor's bits were changed."""
    return zlib.crc32(bits(tensor).numpy().data)


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same bits, so that NaN equals itself."""
    return torch.equal(bits(one), bits(other))


def _buffers(module: nn.Module, layout: Layout) -> dict[str, Tensor]:
    inside = {entry.name for entry in layout.rest}
    return {name: b for name, b in module.named_buffers() if name not in inside}


def _untrained(module: nn.Module) -> dict[str, Tensor]:
    return {name: p for name, p in module.named_parameters() if not p.requires_grad}
