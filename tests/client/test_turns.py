"""Threads that share a network, or PyTorch's settings, get the results of one thread."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import pytest
import torch
from torch import Tensor, nn

from tests.federations import blobs
from umbel.client.net import Net
from umbel.client.work import LocalTraining
from umbel.engines import Vectorised
from umbel.flow import Engine, Request, Rows

T = TypeVar("T")

NORMALISED = Net(lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)))


@pytest.fixture(autouse=True)
def frequent_switches() -> Iterator[None]:
    """Let threads interrupt each other all the time."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def in_threads(function: Callable[[int], T], times: int) -> list[T]:
    with ThreadPoolExecutor(3) as threads:
        return list(threads.map(function, range(times)))


def trained(engine: Engine, net: Net, seed: int) -> Tensor:
    theta = Rows(net.new(seed)[None], torch.zeros(6, dtype=torch.long))
    request = Request(LocalTraining(), torch.arange(6), range(6), each={"theta": theta})
    return engine.send(request).columns["update"]


def test_an_engine_that_threads_share_answers_each_as_if_alone() -> None:
    engine = Vectorised(NORMALISED, blobs())
    expected = [trained(engine, NORMALISED, seed) for seed in range(40)]
    found = in_threads(lambda seed: trained(engine, NORMALISED, seed), 40)
    assert all(map(torch.equal, found, expected))
