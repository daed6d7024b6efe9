"""Which engine runs the work: the one rule, in one place."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.func import vmap
from torch.nn.modules.batchnorm import _BatchNorm

from umbel.checks import UsageError, check
from umbel.data.federation import Federation
from umbel.engines.sequential import Sequential
from umbel.engines.storage import store
from umbel.engines.vectorised import Vectorised
from umbel.flow import Engine
from umbel.net import Net, Precision
from umbel.settings import Settings
from umbel.shard import Batch

log = logging.getLogger(__name__)

CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


@dataclass(frozen=True)
class EngineSettings(Settings):
    """Where and how clients work in this process."""

    name: Literal["auto", "sequential", "vectorised"] = "auto"
    device: str = "auto"  # "cpu", "cuda", "cuda:1", ...; auto: CUDA where there is one
    memory_mb: float | None = None  # working set of the vectorised engine; default by device
    kernel: Literal["auto", "general", "dense", "in-place"] = "auto"
    precision: Precision = "full"  # "bf16": passes through the module in bfloat16 autocast

    def __post_init__(self) -> None:
        limit = self.memory_mb
        check(limit is None or limit > 0, "memory_mb", limit, "more than 0")
        in_place = self.kernel == "in-place" and self.name == "vectorised"
        check(not in_place, "kernel", self.kernel, "of the sequential engine, not the vectorised")
        cut = self.kernel == "dense" and self.precision != "full"
        check(not cut, "precision", self.precision, '"full" with the kernel "dense"')
        try:
            torch.device("cpu" if self.device == "auto" else self.device)
        except RuntimeError:
            check(False, "device", self.device, 'a device such as "cpu" or "cuda"')


def make_engine(net: Net, federation: Federation, settings: EngineSettings | None = None) -> Engine:
    """The engine that the settings ask for.

    The rule of "auto": clients are batched if the module allows it, except for convolutions on a
    CPU, which run faster one client after another. Batched chains of linear layers have a kernel
    of their own, and so has training one client after another; the general kernel does the rest.
    Raises `ValueError` if what is asked for can't be done with this module, or if the device does
    not exist.
    """
    settings = settings or EngineSettings()
    device = torch.device(_device(settings.device))
    obstacle = _why_sequential(net, federation, settings, device)
    if settings.name == "vectorised":
        check(obstacle is None, "engine.name", "vectorised", f"possible: {obstacle}")
    elif settings.name == "auto" and obstacle is not None:
        log.info("clients run one after another: %s", obstacle)
    kernel = settings.kernel
    if obstacle is not None:
        kernel = "in-place" if kernel == "auto" else kernel
        return Sequential(net.using(kernel, settings.precision), federation, device)
    if kernel == "auto":
        kernel = "dense" if net.is_dense and settings.precision == "full" else "general"
    fast = net.using(kernel, settings.precision)
    return Vectorised(fast, federation, device, settings.memory_mb)


def _why_sequential(
    net: Net, federation: Federation, settings: EngineSettings, device: torch.device
) -> str | None:
    """Why clients are to run one after another, or None if they are batched."""
    if settings.name == "sequential":
        return "as the settings say"
    if settings.kernel == "in-place":
        return "the kernel takes one at a time"
    if settings.name == "auto" and federation.num_clients == 1:
        return "there is only one"
    obstacle = why_not_batchable(net, federation)
    if obstacle is not None or settings.name == "vectorised":
        return obstacle
    if device.type == "cpu" and any(isinstance(part, CONVOLUTIONS) for part in net.parts):
        return "convolutions are faster so on a CPU"
    return None


def _device(wanted: str) -> str:
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=wanted)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise UsageError(f"engine.device: {wanted!r} is not available here: {error}") from error
    return wanted


def why_not_batchable(net: Net, federation: Federation) -> str | None:
    """Why the module can't be run for many clients at once with padding, or None if it can."""
    if any(isinstance(part, _BatchNorm) for part in net.parts):
        return "batch normalisation mixes the examples of a batch, padding among them"
    split, model = store(federation, net.dtype, torch.device("cpu")).train, net.new(seed=0)
    x, y, last = split.x, split.y, len(split.x) - 1

    def gradient(theta: torch.Tensor, padding: torch.Tensor) -> torch.Tensor:
        rows = torch.stack([torch.zeros_like(padding), torch.zeros_like(padding) + last // 3])
        rows = torch.cat([rows, padding[None]])
        batch = Batch(x[rows], y[rows], torch.tensor([True, True, False]))
        found, rest = net.gradient(theta, batch)
        return torch.cat([found, rest])

    try:
        one, other = vmap(gradient)(torch.stack([model, model]), torch.tensor([last // 2, last]))
    except Exception as error:  # whatever the module does that vmap can't
        return f"vmap refuses the module: {str(error).splitlines()[0]}"
    if not torch.equal(one, other):
        return "the module mixes the examples of a batch, padding among them"
    return None
