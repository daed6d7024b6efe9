"""Seeding of the global random generators of PyTorch, NumPy and Python, for modules' draws."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from umbel.client.turns import TURN


@contextmanager
def drawing_from(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Draw from this seed inside the block, and restore the generators after it.

    PyTorch's generators are those of the CPU and of `device`, if it is a CUDA device; generators of
    other devices are not changed. Other threads wait before they draw.
    """
    cuda = device is not None and device.type == "cuda"
    devices = [device] if cuda else []
    with TURN.lock, _plain_generators(seed), torch.random.fork_rng(devices=devices):
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        elif device is not None and device.type != "cpu":
            torch.manual_seed(seed)
        # `torch.manual_seed` seeds all devices, and records a traceback for absent ones, which
        # takes longer than a step of a small network.
        torch.default_generator.manual_seed(seed)
        yield


def plain_state() -> tuple[object, ...]:
    """The state of the generators of Python and NumPy, which changes with every draw."""
    _, key, *rest = np.random.get_state()  # noqa: NPY002
    return random.getstate(), np.asarray(key).tobytes(), *rest


@contextmanager
def _plain_generators(seed: int) -> Iterator[None]:
    """The same for the generators of NumPy and Python."""
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
