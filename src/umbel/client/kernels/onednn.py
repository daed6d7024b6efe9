"""Products of matrices by oneDNN, on processors on which it takes half the time.

On x86, PyTorch leaves products in single precision to Intel's MKL, which does not use AVX-512 on
AMD's processors. From family 26 on (Zen 5) these compute with all 512 bits at once, as oneDNN does.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

FAMILY = 26

WEIGHTS, WORK = 50_001, 3_000_000
"""Fewest values of a matrix, and fewest multiplications, for faster products, by
`python -m benchmarks.libraries`. Models that are computed with those of other seeds are smaller:
their results would depend on it."""

CPU_INFO = Path("/proc/cpuinfo")


def is_faster_for(rows: int, matrix: Tensor) -> bool:
    """Whether the product of so many rows and a matrix is faster by oneDNN."""
    large = matrix.numel() >= WEIGHTS and rows * matrix.numel() >= WORK
    return large and matrix.dtype == torch.float32 and not matrix.is_cuda and is_faster()


def linear(rows: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """rows (B, in) times weight (out, in) transposed, plus bias (out,)."""
    return torch.ops.mkldnn._linear_pointwise(  # type: ignore[no-any-return]
        rows, weight, bias, "none", [], ""
    )


@cache
def is_faster() -> bool:
    """Whether oneDNN is the faster one on this processor."""
    there = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
    wide = torch.backends.cpu.get_cpu_capability() == "AVX512"
    by_mkl = torch.backends.mkl.is_available()  # type: ignore[no-untyped-call]
    callable_ = hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return there and by_mkl and callable_ and wide and _family_of_amd() >= FAMILY


def _family_of_amd() -> int:
    """The family of AMD's processor, 0 for others and where the system does not say."""
    try:
        said = CPU_INFO.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    found = re.search(r"^cpu family\s*: (\d+)$", said, re.MULTILINE)
    return int(found[1]) if found and re.search(r"^vendor_id\s*: AuthenticAMD$", said, re.M) else 0
