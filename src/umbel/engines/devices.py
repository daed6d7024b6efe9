"""How PyTorch computes on a GPU where runs are to be repeatable."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.backends import cudnn

from umbel.checks import UsageError

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""What cuBLAS reads when it is first used: with a workspace of its own it repeats its results."""


@contextmanager
def repeatable(device: torch.device) -> Iterator[None]:
    """Have the same inputs give the same bits inside, and full precision be full.

    PyTorch's convolutions round to 10 bits on a GPU by themselves, and some of its operations add
    in whatever order threads come. Afterwards its settings are as they were. On a CPU there is
    nothing to set.
    """
    if device.type != "cuda":
        yield
        return
    os.environ.setdefault(WORKSPACE, ":4096:8")
    products, memory = torch.backends.cuda.matmul, torch.utils.deterministic
    before = (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        memory.fill_uninitialized_memory,  # type: ignore[attr-defined]
        products.allow_tf32,
    )
    exact = cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False)
    with warnings.catch_warnings(), exact:
        warnings.filterwarnings("ignore", ".*deterministic")
        # Nothing reads what was not written, and to fill it takes a tenth of a step.
        _set(deterministic=True, warn_only=True, filled=False, coarse=False)
        try:
            yield
        finally:
            _set(*before)


@contextmanager
def enough_memory(said: str) -> Iterator[None]:
    """Raise `UsageError` that begins so where a device has too little memory."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        why = str(error).partition(". ")[0]
        raise UsageError(f"{said} ({why})") from error


def _set(deterministic: bool, warn_only: bool, filled: bool, coarse: bool) -> None:
    torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
    torch.utils.deterministic.fill_uninitialized_memory = filled  # type: ignore[attr-defined]
    torch.backends.cuda.matmul.allow_tf32 = coarse
