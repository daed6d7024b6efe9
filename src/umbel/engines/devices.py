"""PyTorch's settings for GPUs with which runs can be repeated bit for bit."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch.backends import cudnn

from umbel.checks import UsageError, lacks_memory
from umbel.client.process_locks import TURN, HeldSetting

WORKSPACE = "CUBLAS_WORKSPACE_CONFIG"
"""Environment variable that cuBLAS reads at first use: a fixed workspace makes it deterministic."""


class GpuSettings(NamedTuple):
    """PyTorch's settings of how it computes on a GPU."""

    deterministic: bool
    warn_only: bool
    # whether new memory is filled; nobody reads it unwritten, and filling takes a tenth of a step
    fills_memory: bool
    cudnn_deterministic: bool
    cudnn_benchmark: bool
    # whether partial sums of bfloat16 products may be rounded to bfloat16, and sums be split
    bf16_sums: bool | tuple[bool, bool]
    precisions: tuple[str, ...]  # of convolutions, recurrent layers and products, in that order

    @classmethod
    def now(cls) -> GpuSettings:
        """The present settings of this process."""
        return cls(
            torch.are_deterministic_algorithms_enabled(),
            torch.is_deterministic_algorithms_warn_only_enabled(),
            torch.utils.deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
            cudnn.deterministic,
            cudnn.benchmark,
            _bf16_sums(),
            tuple(map(_set_to, _with_precision())),
        )

    def put(self) -> None:
        """Apply these settings to this process."""
        torch.use_deterministic_algorithms(self.deterministic, warn_only=self.warn_only)
        torch.utils.deterministic.fill_uninitialized_memory = self.fills_memory  # type: ignore[attr-defined]
        cudnn.deterministic, cudnn.benchmark = self.cudnn_deterministic, self.cudnn_benchmark
        torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = self.bf16_sums
        for part, precision in zip(_with_precision(), self.precisions, strict=True):
            part.fp32_precision = precision


def _with_precision() -> tuple[Any, ...]:
    return cudnn.conv, cudnn.rnn, torch.backends.cuda.matmul  # type: ignore[attr-defined]


def _bf16_sums() -> bool | tuple[bool, bool]:
    products: Any = torch.backends.cuda.matmul
    rounded = bool(products.allow_bf16_reduced_precision_reduction)
    split = getattr(products, "allow_bf16_reduced_precision_reduction_split_k", None)
    return rounded if split is None else (rounded, bool(split))


def _set_to(part: Any) -> str:
    """The precision that was set for it; "none" if the setting for all operations applies."""
    found = str(part.fp32_precision)
    part.fp32_precision = "none"
    own = "none" if part.fp32_precision == found else found
    part.fp32_precision = own
    return own


EXACT = HeldSetting(
    GpuSettings.now,
    GpuSettings.put,
    GpuSettings(
        deterministic=True,
        warn_only=True,
        fills_memory=False,
        cudnn_deterministic=True,
        cudnn_benchmark=False,
        bf16_sums=False,
        precisions=("ieee", "ieee", "ieee"),
    ),
)


@contextmanager
def repeatable(device: torch.device) -> Iterator[None]:
    """Give equal bits for equal inputs on a GPU in the `with` block, in full precision.

    By default PyTorch's convolutions round to 10 bits on a GPU, and some of its operations add
    numbers in the order in which threads finish. The former settings are restored at the end. On a
    CPU nothing needs to be set.
    """
    if device.type != "cuda":
        yield
        return
    os.environ.setdefault(WORKSPACE, ":4096:8")
    with TURN.lock, warnings.catch_warnings(), EXACT.held():
        warnings.filterwarnings("ignore", ".*deterministic")  # `check_there` has told of it
        yield


@contextmanager
def enough_memory(said: Callable[[], str]) -> Iterator[None]:
    """Raise `UsageError` with the text of `said` if a device runs out of memory in the block.

    If the machine's own memory runs out, raise `MemoryError`.
    """
    try:
        yield
    except torch.OutOfMemoryError as error:
        why = str(error).partition(". ")[0]
        raise UsageError(f"engine.device: not enough memory: {said()} ({why})") from error
    except RuntimeError as error:
        if not lacks_memory(error):
            raise
        raise MemoryError(said()) from error
