"""Random numbers that modules draw from global generators: PyTorch's, NumPy's, Python's."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def drawing_from(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Draw from this seed inside, and leave the generators as they were.

    Those of PyTorch are the CPU's and that of `device`, if it is a CUDA device.
    """
    other = device is not None and device.type == "cuda"
    with _plain_generators(seed), torch.random.fork_rng(devices=[device] if other else []):
        if torch.accelerator.is_available():
            torch.manual_seed(seed)
        else:
            # The former does this too, and then notes for each kind of device that is absent where
            # it was called from, which takes longer than a step of a small network.
            torch.default_generator.manual_seed(seed)
        yield


@contextmanager
def _plain_generators(seed: int) -> Iterator[None]:
    """The same for those of NumPy and of Python."""
    before = random.getstate(), np.random.get_state()  # noqa: NPY002
    random.seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
