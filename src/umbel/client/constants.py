"""Tensors of a module that are not in theta, and that all models share."""

from __future__ import annotations

import copy
import hashlib

import torch
from torch import Tensor, nn

from umbel.checks import UsageError, first_line
from umbel.client.layout import Layout, persistent_buffers

COMPUTED = (torch.float32, torch.float64, torch.int64, torch.bool)
"""The types of buffers that a module computes, such as tables of positions: their last digits may
differ by machine. Buffers of other types hold what was quantised."""

KEPT = (
    "let forward keep no tensor on the module, as self.h = ... does, but in a variable of its own; "
    "use nn.utils.parametrizations.weight_norm in place of nn.utils.weight_norm, call "
    "nn.utils.prune.remove after pruning, and "
)
"""How to keep tensors that can't be copied out of a module."""


def scratch_of(module: nn.Module, layout: Layout) -> dict[str, Tensor]:
    """Buffers that a pass may write in: what is not saved, and the counters of normalisations.

    Each pass has copies of its own, so that nothing goes from one client to another.
    """
    saved = persistent_buffers(module)
    return {
        name: buffer
        for name, buffer in _buffers(module, layout).items()
        if name not in saved or name.rpartition(".")[2] == "num_batches_tracked"
    }


def constants_of(module: nn.Module, layout: Layout) -> dict[str, Tensor]:
    """Frozen parameters, and buffers such as tables of positions, which no pass changes."""
    scratch = scratch_of(module, layout)
    buffers = {n: b for n, b in _buffers(module, layout).items() if n not in scratch}
    return {**_untrained(module), **buffers}


def frozen_of(module: nn.Module, layout: Layout) -> dict[str, Tensor]:
    """The constants that are somebody's result: frozen parameters, and quantised buffers."""
    constants = constants_of(module, layout)
    parameters = _untrained(module)
    return {
        name: tensor
        for name, tensor in constants.items()
        if name in parameters or tensor.dtype not in COMPUTED
    }


def twin(module: nn.Module, layout: Layout) -> nn.Module:
    """A copy of a module that shares the memory of its constants.

    Raises `UsageError` where torch can't copy it.
    """
    shared = {}
    for constant in constants_of(module, layout).values():
        plain = type(constant) is nn.Parameter
        # A parameter of its own, as a module that is moved or cast gives its parameters new values.
        twin = nn.Parameter(constant.detach(), requires_grad=False) if plain else constant
        shared[id(constant)] = twin
    try:
        return copy.deepcopy(module, shared)
    except (RuntimeError, TypeError) as error:
        said = first_line(error)
        # Tensors that can't be copied raise it, and so do some locks.
        of_tensors = KEPT if isinstance(error, RuntimeError) else ""
        raise UsageError(
            f"Net: {type(module).__name__} can't be copied, and every client trains a copy: "
            f"{of_tensors}keep files and locks out of it ({said})"
        ) from error


def digest_of(tensors: dict[str, Tensor]) -> str:
    """A name shared by tensors of the same names, types, shapes and bits; "" for no tensors."""
    if not tensors:
        return ""
    total = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        total.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        if tensor.numel():
            total.update(bits(tensor).numpy().data)
    return total.hexdigest()


def written_out(tensor: Tensor) -> Tensor:
    """The values as memory is to have them: in order, and conjugated or negated where due."""
    return tensor.detach().cpu().resolve_conj().resolve_neg().contiguous()


def bits(tensor: Tensor) -> Tensor:
    """The bytes of a tensor, whatever its type: (n,) uint8."""
    # A single value may have any stride, however contiguous it is said to be.
    flat = written_out(tensor).as_strided((tensor.numel(),), (1,))
    return flat.view(torch.uint8)


def same(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors hold the same bits: by these NaN equals itself."""
    return torch.equal(bits(one), bits(other))


def _buffers(module: nn.Module, layout: Layout) -> dict[str, Tensor]:
    inside = {entry.name for entry in layout.rest}
    return {name: b for name, b in module.named_buffers() if name not in inside}


def _untrained(module: nn.Module) -> dict[str, Tensor]:
    return {name: p for name, p in module.named_parameters() if not p.requires_grad}
