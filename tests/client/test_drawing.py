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
from umbel.client.drawing import drawing_from
from umbel.client.net import Net
from umbel.runs.run import Run


def draw() -> tuple[float, float, float]:
    return float(torch.rand(())), random.random(), float(np.random.rand())  # noqa: NPY002


def draw_elsewhere() -> None:
    with drawing_from(2):
        draw()


def test_a_thread_that_draws_is_not_disturbed_by_another() -> None:
    with drawing_from(1):
        expected = draw()
    inside, over = threading.Event(), threading.Event()

    def draw_elsewhere_meanwhile() -> None:
        with drawing_from(2):
            inside.set()
            over.wait()

    other = threading.Thread(target=draw_elsewhere_meanwhile)
    with drawing_from(1):
        other.start()
        inside.wait(timeout=0.2)  # in vain: it waits until this one is done
        found = draw()
    over.set()
    other.join()
    assert found == expected


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
    drawing, over = threading.Event(), threading.Event()

    def hold() -> None:
        with drawing_from(3):
            drawing.set()
            over.wait()

    other = threading.Thread(target=hold)
    other.start()
    drawing.wait()
    child = os.fork()
    if not child:
        draw_elsewhere()
        os._exit(0)
    over.set()
    other.join()
    assert os.waitpid(child, 0)[1] == 0
