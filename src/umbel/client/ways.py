"""The ways in which a net computes, and the kernel of each."""

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
"""Kernels for any module, also many at once; for chains of linear layers; for one after another."""

Precision: TypeAlias = Literal["full", "bf16"]


@dataclass(frozen=True)
class Way:
    """How a net computes; results are the same up to rounding."""

    kernel: KernelName = "general"
    precision: Precision = "full"
    one_by_one: bool = False  # whether it goes through models one after another, without vmap
    micro_batch: int | None = None  # examples that go through the module at once; None: all
    channels_last: bool = False  # whether images are so in memory, where kernel is in-place
    # whether a full gradient needs all examples in one batch, as the module mixes them; None: not
    # tried
    whole: bool | None = None


def kernel_of(modules: Modules, objective: Objective, way: Way) -> Kernel:
    """The kernel that computes in this way."""
    whole = _whole(modules, objective, way)
    return whole if way.micro_batch is None else Accumulating(whole, way.micro_batch)


def _whole(modules: Modules, objective: Objective, way: Way) -> Kernel:
    """The kernel for whole mini-batches."""
    general = _general(modules, objective, way)
    if way.kernel == "in-place":
        return InPlace(general, way.channels_last)
    if way.kernel != "dense":
        return general
    dense = recognise(modules.training, objective, way.precision == "bf16")
    return general if dense is None else Chain(dense, general)


def _general(modules: Modules, objective: Objective, way: Way) -> General:
    # What the dense kernel leaves to this one is too rare, and too small, to gain from bfloat16.
    cast = way.precision == "bf16" and way.kernel != "dense"
    return General(modules, objective, torch.bfloat16 if cast else None)
