"""Global generators are the process's: threads draw from them in turn."""

from __future__ import annotations

import os
import random
import threading

import numpy as np
import pytest
import torch

from umbel.client.seeding import drawing_from


def draw() -> tuple[float, float, float]:
    return float(torch.rand(())), random.random(), float(np.random.rand())  # noqa: NPY002


class Other(threading.Thread):
    """A thread that goes on drawing until it is told that this is over."""

    def __init__(self) -> None:
        super().__init__()
        self.drawing, self.over = threading.Event(), threading.Event()

    def run(self) -> None:
        with drawing_from(2):
            self.drawing.set()
            self.over.wait()

    def end(self) -> None:
        self.over.set()
        self.join()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs processes that can be forked")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_process_that_is_forked_meanwhile_can_draw() -> None:
    other = Other()
    other.start()
    other.drawing.wait()
    child = os.fork()
    if not child:
        with drawing_from(1):
            draw()
        os._exit(0)
    other.end()
    assert os.waitpid(child, 0)[1] == 0
