"""The precision in which a network computes if bfloat16 is requested."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Literal

import torch
from torch import nn

from umbel.checks import UsageError
from umbel.client.kernel_choice import KernelName, Precision
from umbel.client.net import Net

log = logging.getLogger(__name__)

UNITS = ("avx512_bf16", "amx_bf16", "bf16", "sve_bf16")
"""Names of processor features for products of bfloat16 numbers: x86's, then ARM's."""

SMALLEST = 50_000
"""Values from which on convolutions and recurrent networks are faster in bfloat16."""

SMALLEST_OTHERS = 1_000_000
"""Values from which on other networks are, such as linear layers with normalisation or dropout."""


def bf16_units() -> list[str]:
    """Return this processor's features for products of bfloat16 numbers that PyTorch can use."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        return []
    if hasattr(torch.cpu, "get_capabilities"):
        has = {name for name, value in torch.cpu.get_capabilities().items() if value is True}
    else:  # before PyTorch 2.10
        info = Path("/proc/cpuinfo")
        has = set(info.read_text(encoding="utf-8").split()) if info.exists() else set()
    return [unit for unit in UNITS if unit in has]


def check_processor(wanted: Precision, which: str = "this processor") -> None:
    """Raise `UsageError` if the processor of this process has no products as they are wanted."""
    if wanted == "bf16" and not bf16_units():
        _refuse(f"{which} has no products of bfloat16 numbers ({' or '.join(UNITS)})")


def usable_precision(
    net: Net, device: torch.device, wanted: Precision, kernel: KernelName | Literal["auto"] = "auto"
) -> Precision:
    """Return the precision that the network computes in: as wanted, unless that would be slower.

    On a processor, the kernel for chains of linear layers decides for each product, and networks
    that have attention or are small stay in full precision. On a GPU, chains of linear layers stay
    in full precision. Networks whose values are not in single precision stay as they are. Raises
    `UsageError` for a GPU without products of bfloat16 numbers.
    """
    if wanted == "full":
        return wanted
    if device.type == "cuda" and not torch.cuda.is_bf16_supported(including_emulation=False):
        _refuse(f"{torch.cuda.get_device_name(device)} has no products of bfloat16 numbers")
    slower = _why_slower(net, device, chain=net.is_dense and kernel in ("auto", "dense"))
    if slower is None:
        return wanted
    log.warning("engine.precision: clients compute in full precision: in bf16, %s", slower)
    return "full"


def _why_slower(net: Net, device: torch.device, chain: bool) -> str | None:
    if net.dtype != torch.float32:
        return f"values of {net.dtype} keep their own precision"
    if device.type != "cpu":
        return "chains of linear layers are slower on a GPU" if net.is_dense else None
    if chain:
        return None
    if any(isinstance(part, nn.MultiheadAttention) for part in net.parts):
        return "attention is slower on a processor"
    costly = any(isinstance(part, CONVOLUTIONS + RECURRENT) for part in net.parts)
    smallest = SMALLEST if costly else SMALLEST_OTHERS
    if net.layout.num_weights + net.num_frozen < smallest:
        which = "" if costly else " without convolutions or recurrent layers"
        return f"a network of fewer than {smallest:,} values{which} is slower on a processor"
    return None


def _refuse(why: str) -> None:
    how = 'write "full", or go on with a run that was begun in bf16 where there are such'
    raise UsageError(f"engine.precision: {why}, and would be slower in bf16: {how}")


CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)

RECURRENT = (nn.RNN, nn.LSTM, nn.GRU)
"""Layers for which `torch.func.vmap` has no rule, on any device.

Attention and layer normalisation have such a rule.
"""
