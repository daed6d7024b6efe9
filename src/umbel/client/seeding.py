"""Seeding of the global random generators of PyTorch, NumPy and Python, for modules' draws."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from umbel.client.process_locks import TURN


@contextmanager
def drawing_from(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Draw from this seed inside the block, and restore the generators after it.

    PyTorch's generators are those of the CPU and of `device`, if it is a CUDA device; generators of
    other devices are not changed. Other threads wait before they draw.
    """
    cuda = device is not None and device.type == "cuda"
    with TURN.lock, generators_restored(device):
        random.seed(seed)
        np.random.seed(seed % 2**32)  # noqa: NPY002
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        elif device is not None and device.type != "cpu":
            torch.manual_seed(seed)
        # `torch.manual_seed` seeds all devices, and records a traceback for absent ones, which
        # takes longer than a step of a small network.
        torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def generators_restored(device: torch.device | None) -> Iterator[None]:
    """Restore the generators after the block: what comes next draws the same as the block.

    PyTorch's generators are those of the CPU and of `device`, if it is a CUDA device.
    """
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    devices = [device] if device is not None and device.type == "cuda" else []
    try:
        with torch.random.fork_rng(devices=devices):
            yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002


def plain_state() -> tuple[object, ...]:
    """The state of the generators of Python and NumPy, which changes with every draw."""
    _, key, *rest = np.random.get_state()  # noqa: NPY002
    return random.getstate(), np.asarray(key).tobytes(), *rest
