"""Random numbers that modules draw from global generators: PyTorch's, NumPy's, Python's."""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch


class Turn:
    """Who draws: the generators are the process's, and so are used by one thread at a time."""

    def __init__(self) -> None:
        self.lock = threading.RLock()
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._renew)

    def _renew(self) -> None:
        """Forget who held it: in a process that was forked there are no other threads."""
        self.lock = threading.RLock()


TURN = Turn()


@contextmanager
def drawing_from(seed: int, device: torch.device | None = None) -> Iterator[None]:
    """Draw from this seed inside, and leave the generators as they were.

    Those of PyTorch are the CPU's and that of `device`, if it is a CUDA device; those of other
    devices stay as they are. Other threads that want to draw wait.
    """
    cuda = device is not None and device.type == "cuda"
    devices = [device] if cuda else []
    with TURN.lock, _plain_generators(seed), torch.random.fork_rng(devices=devices):
        if cuda:
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)
        elif device is not None and device.type != "cpu":
            torch.manual_seed(seed)
        # `torch.manual_seed` seeds all devices, and notes for those that are absent where it was
        # called from, which takes longer than a step of a small network.
        torch.default_generator.manual_seed(seed)
        yield


def plain_state() -> tuple[object, ...]:
    """Where the generators of Python and NumPy are: the same until somebody draws from them."""
    _, key, *rest = np.random.get_state()  # noqa: NPY002
    return random.getstate(), np.asarray(key).tobytes(), *rest


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
