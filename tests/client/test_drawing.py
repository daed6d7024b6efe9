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


def test_a_thread_that_draws_is_not_disturbed_by_another() -> None:
    with drawing_from(1):
        expected = draw()
    other = Other()
    with drawing_from(1):
        other.start()
        other.drawing.wait(timeout=0.2)  # in vain: it waits until this one is done
        found = draw()
    other.end()
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


def test_generators_of_devices_that_are_not_drawn_from_stay_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def seeds_all_devices(seed: int) -> None:
        raise AssertionError(f"seeds all devices with {seed}")

    monkeypatch.setattr(torch, "manual_seed", seeds_all_devices)
    before = torch.get_rng_state()
    drawn = []
    for device in (None, torch.device("cpu")):
        with drawing_from(5, device):
            drawn.append(torch.rand(3))
    assert torch.equal(*drawn)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here")
def test_the_generator_of_a_gpu_is_put_back_too() -> None:
    gpu = torch.device("cuda")
    before = torch.cuda.get_rng_state(gpu)
    drawn = []
    for _ in range(2):
        with drawing_from(5, gpu):
            drawn.append(torch.rand(3, device=gpu))
    with drawing_from(5):
        pass
    assert torch.equal(*drawn)
    assert torch.equal(torch.cuda.get_rng_state(gpu), before)
