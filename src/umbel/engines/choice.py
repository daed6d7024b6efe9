"""The choice of the engine by the settings, the module and the device."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Literal

import torch

from umbel.checks import UsageError, check, check_least
from umbel.client.kernel_choice import KernelName, Precision
from umbel.client.net import Net
from umbel.client.seeding import drawing_from
from umbel.cores import cores
from umbel.data.federation import Federation
from umbel.engines.allocation import give_back_freed_memory, keep_freed_memory
from umbel.engines.batchable import why_not_batchable, why_not_there
from umbel.engines.devices import enough_memory
from umbel.engines.precision import CONVOLUTIONS, RECURRENT, check_processor, usable_precision
from umbel.engines.processes.workers import Workers, can_fork
from umbel.engines.sequential import Sequential
from umbel.engines.vectorised import Vectorised
from umbel.flow import Engine
from umbel.preflight.network import check_fit, check_there
from umbel.preflight.properties import check_general, mixes, with_channels_last
from umbel.preflight.sample import sample
from umbel.preflight.torch_errors import in_a_line
from umbel.settings import Settings

log = logging.getLogger(__name__)

LARGEST_BATCHED = 150_000
"""Values of a model up to which batching pays on a CPU, but for chains of linear layers.

Larger models are read from memory for each step, and batching only moves more of them
(docs/benchmarks.md, "Normalised layers" and "Sequences").
"""


@dataclass(frozen=True)
class EngineSettings(Settings):
    """Settings of the engine: how clients work in this process, and on which device.

    >>> umbel.EngineSettings(device="cpu", kernel="general").name
    'auto'

    In full precision, results are the same up to rounding with all settings, except for dropout:
    with `micro_batch_size` or `memory_mb` it draws random numbers for each part of a mini-batch,
    and after convolutions, or attention with `batch_first=True`, it drops different values with
    different kernels.
    Raises `UsageError` for values out of range.
    """

    #: whether clients are batched; auto: if the module allows it and it is faster; ray: as auto, on
    #: a Ray cluster
    name: Literal["auto", "sequential", "vectorised", "ray"] = "auto"
    #: "cpu", "cuda", "cuda:1", ...; auto: CUDA where there is one, and the CPU with Ray
    device: str = "auto"
    #: largest working set of a chunk of batched clients, or else largest activations of a
    #: mini-batch, in MiB; None: a size that suits the device for chunks, and no bound on
    #: activations
    memory_mb: float | None = None
    #: examples of a mini-batch that go through the network at once; None: all that memory_mb allows
    micro_batch_size: int | None = None
    #: how models are computed; auto: the fastest that fits
    kernel: Literal["auto", "general", "dense", "in-place"] = "auto"
    #: "bf16": products of bfloat16 numbers where they are faster; sums and models in full precision
    precision: Precision = "full"
    #: number of processes on this machine that share the clients; auto: several if that is faster
    workers: int | Literal["auto"] = "auto"
    #: address of the Ray cluster to join, "auto" for one on this machine; "": start one here
    address: str = ""

    def __post_init__(self) -> None:
        limit = self.memory_mb
        check(limit is None or 0 < limit < 1e12, "memory_mb", limit, "more than 0, and below 1e12")
        check_least(self, 1, "micro_batch_size")
        count = self.workers
        check(count == "auto" or count >= 1, "workers", count, '1 or more, or "auto"')
        in_place = self.kernel == "in-place" and self.name == "vectorised"
        check(not in_place, "kernel", self.kernel, "for the vectorised engine: use the sequential")
        joined = not self.address or self.name == "ray"
        check(joined, "address", self.address, '"": only name = "ray" joins a cluster')
        try:
            device = torch.device("cpu" if self.device == "auto" else self.device)
        except RuntimeError:
            check(False, "device", self.device, 'a device such as "cpu" or "cuda"')
        fine = self.name != "ray" or device.type == "cpu"
        check(fine, "device", self.device, '"cpu" with Ray, whose actors use no GPUs')


def make_engine(
    net: Net, federation: Federation, settings: EngineSettings | None = None, fits: bool = False
) -> Engine:
    """Make the engine that the settings ask for; `fits` says that the network was tried before.

    The rule of "auto": clients are batched if the module allows it. Attention and normalisation
    layers do, recurrent layers don't, and networks with convolutions, or with more than 150,000
    trained values, run one client after another on a CPU, because that is faster. There is a
    special kernel for chains of linear layers, which are batched in any size, and one for training
    one client after another; the general kernel does the rest. Raises `UsageError` if the settings
    are not possible with this module, or if the device does not exist.
    """
    settings = settings or EngineSettings()
    on_ray = settings.name == "ray"
    # Once a process: copies made while data were read go back to the system, later blocks stay.
    give_back_freed_memory()
    keep_freed_memory()
    device = torch.device("cpu" if on_ray else _device(settings.device))
    if device.type == "cpu" and not on_ray:  # actors say what their own processors can do
        check_processor(settings.precision)
    # random numbers that modules draw while they are tried must not change the user's generators
    with drawing_from(0, device):
        if not fits:
            check_fit(net, federation)
        inner = replace(settings, name="auto", address="") if on_ray else settings
        engine = _in_process(net, federation, inner, device)
    if not on_ray:
        return _spread(engine, settings)
    try:
        from umbel.engines.ray.cluster import RayCluster
    except ModuleNotFoundError as error:
        if error.name != "ray":
            raise
        raise UsageError('engine.name = "ray" needs Ray: pip install "umbel[ray]"') from None
    workers = None if settings.workers == "auto" else settings.workers
    return RayCluster.join(engine, federation, settings.address, workers)


def _in_process(
    net: Net, federation: Federation, settings: EngineSettings, device: torch.device
) -> Sequential | Vectorised:
    # The order matters: the kernel depends on batching, and the parts of a mini-batch on both.
    kernel = settings.kernel
    precision = usable_precision(net, device, settings.precision, kernel)
    obstacle = _why_sequential(net, federation, settings, device)
    elsewhere = precision != "full" or device.type != "cpu"
    if obstacle is None and elsewhere and not net.is_dense:
        obstacle = why_not_there(net, federation, device, precision)
    if settings.name == "vectorised":
        check(obstacle is None, "engine.name", "vectorised", f"possible: {obstacle}")
    elif settings.name == "auto" and obstacle is not None:
        log.info("clients run one after another: %s", obstacle)
    if kernel == "auto":
        kernel = _kernel(net, batched=obstacle is None)
    fast = with_channels_last(net.using(kernel, precision), federation)
    if kernel == "general":
        check_general(fast, federation)
    size = _part(fast, federation, settings, batched=obstacle is None)
    fast = fast if size is None else fast.in_parts(size)
    if device.type != "cpu":
        with enough_memory(lambda: "it can't hold the network and two examples"):
            check_there(fast, federation, device)
    if obstacle is not None:
        return Sequential(fast, federation, device)
    return Vectorised(fast, federation, device, settings.memory_mb)


def _kernel(net: Net, batched: bool) -> KernelName:
    """The rule of "auto"."""
    if net.is_dense:  # also for one model at a time
        return "dense"
    return "general" if batched else "in-place"


def _part(net: Net, federation: Federation, settings: EngineSettings, batched: bool) -> int | None:
    """Return how many examples of a mini-batch go through the network at once; None: all."""
    size, limit = settings.micro_batch_size, settings.memory_mb
    if size is None and (limit is None or batched or net.layout.rest):
        return None
    if mixes(net, federation):
        expected = "allowed: the network mixes the examples of a mini-batch"
        check(size is None, "engine.micro_batch_size", size, expected)
        return None
    if size is not None:
        return size
    assert limit is not None
    # Forward and backward: activations and their gradients.
    values = 2 * net.modules.values_per_example(sample(net, federation, 1).x)
    return max(1, int(limit * 2**20 / (values * net.dtype.itemsize)))


def _spread(engine: Sequential | Vectorised, settings: EngineSettings) -> Engine:
    """The engine, with its chunks computed by as many processes as the settings ask for.

    The rule of "auto": one process with one thread for each core, because small products can't keep
    many threads busy. For batched chains of linear layers, whose requests take very little time,
    and for a single client, it is one process with several threads.
    """
    wanted, cpu = settings.workers, engine.device.type == "cpu"
    if wanted != "auto":
        if cpu:
            expected = 'possible on a system without fork(): write "auto", or engine.name = "ray"'
        else:
            where = 'for more write engine.device = "cpu"'
            expected = f"1 on {engine.device}, which all workers would share; {where}"
        check(wanted == 1 or (cpu and can_fork()), "engine.workers", wanted, expected)
        return Workers(engine, wanted) if cpu else engine
    # The number of threads that PyTorch would use, which users bound by OMP_NUM_THREADS.
    threads = torch.get_num_threads()
    batched = isinstance(engine, Vectorised) and engine.net.is_dense
    if batched or not cpu or threads == 1 or not can_fork():
        return engine
    # Never more processes than the user allows threads.
    processes = min(threads, cores())
    if len(engine.storage.train.sizes) > 1:
        return Workers(engine, processes)
    # More threads than a container has cores would wait for each other.
    return engine if threads == processes else Workers(engine, 1)


def _why_sequential(
    net: Net, federation: Federation, settings: EngineSettings, device: torch.device
) -> str | None:
    """Return why clients must run one after another, or None if they can be batched."""
    if settings.name == "sequential":
        return "as the settings say"
    if settings.kernel == "in-place":
        return "the in-place kernel takes one client at a time"
    if settings.name == "auto":
        if federation.num_clients == 1:
            return "there is only one client"
        if device.type == "cpu" and any(isinstance(part, CONVOLUTIONS) for part in net.parts):
            return "convolutions are faster that way on a CPU"
        if device.type == "cpu" and not net.is_dense and net.layout.num_values > LARGEST_BATCHED:
            return f"models of more than {LARGEST_BATCHED:,} values are faster that way on a CPU"
        if any(isinstance(part, RECURRENT) for part in net.parts):
            return "recurrent layers can't be batched over clients"
    return why_not_batchable(net, federation)


def _device(wanted: str) -> str:
    if wanted == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.zeros(1, device=wanted).item()
    except (RuntimeError, AssertionError, ImportError) as error:
        # PyTorch goes on to list all backends that it knows, or ways to find the cause.
        said = in_a_line(error, named=False).split(". ")[0]
        raise UsageError(f"engine.device: {wanted!r} is not available here: {said}") from error
    return wanted
