"""The ways in which a net can compute, and the kernel of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch

from umbel.client.kernels.accumulating import Accumulating
from umbel.client.kernels.base import Kernel
from umbel.client.kernels.chain import Chain
from umbel.client.kernels.dense import recognise
from umbel.client.kernels.general import General
from umbel.client.kernels.in_place import InPlace
from umbel.client.kernels.modules import Modules
from umbel.client.objectives import Objective

KernelName: TypeAlias = Literal["general", "dense", "in-place"]
"""Names of kernels: for any module, for chains of linear layers, and for models in sequence."""

Precision: TypeAlias = Literal["full", "bf16"]


@dataclass(frozen=True)
class Way:
    """How a net computes; results are the same up to rounding."""

    kernel: KernelName = "general"
    precision: Precision = "full"
    one_by_one: bool = False  # whether models are computed one after another, without vmap
    micro_batch: int | None = None  # largest number of examples in one pass; None: all
    channels_last: bool = False  # memory format of images in the in-place kernel
    # whether a full gradient needs all examples in one batch, because the module mixes them; None:
    # not tested
    whole: bool | None = None


def kernel_of(modules: Modules, objective: Objective, way: Way) -> Kernel:
    """The kernel that computes in this way."""
    whole = _whole(modules, objective, way)
    return whole if way.micro_batch is None else Accumulating(whole, way.micro_batch)


def _whole(modules: Modules, objective: Objective, way: Way) -> Kernel:
    """The kernel for whole mini-batches."""
    # The dense kernel leaves too little work to the general one for bfloat16 to be worthwhile.
    cast = way.precision == "bf16" and way.kernel != "dense"
    general = General(modules, objective, torch.bfloat16 if cast else None)
    if way.kernel == "in-place":
        return InPlace(general, way.channels_last)
    if way.kernel != "dense":
        return general
    dense = recognise(modules.training, objective, way.precision == "bf16")
    return general if dense is None else Chain(dense, general)
