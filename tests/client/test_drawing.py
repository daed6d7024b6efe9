"""Global generators are the process's: threads draw from them in turn."""

from __future__ import annotations

import os
import random
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from torch import nn

from tests.federations import blobs
from umbel.algorithms import FedAvg
from umbel.client.net import Net
from umbel.client.seeding import drawing_from
from umbel.result.run import Run


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


def test_a_run_draws_the_same_beside_others_in_threads() -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Flatten(), nn.Linear(6, 16), nn.Dropout(0.5), nn.Linear(16, 3))

    def losses(seed: int) -> list[float | None]:
        return [
            record.loss for _, record in Run(FedAvg(), blobs(), Net(build), seed=seed).rounds(3)
        ]

    expected = [losses(seed) for seed in range(6)]
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(losses, range(6))) == expected


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
