"""Threads that share a network, or PyTorch's settings, get the results of one thread."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

from tests.federations import blobs
from umbel.client.net import Net
from umbel.client.work import LocalTraining
from umbel.engines import Sequential, Vectorised
from umbel.flow import Engine, Request, Rows

T = TypeVar("T")

NORMALISED = Net(lambda: nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3)))


class Attention(nn.Module):
    """Attention between the values of an example, which has faster forms than its products."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Linear(1, 8), nn.Linear(8, 3)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        values = self.embed(x[..., None])
        values = values + self.attention(values, values, values, need_weights=False)[0]
        return self.head(values.mean(1))  # type: ignore[no-any-return]


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


def test_a_network_that_threads_share_answers_each_as_if_alone() -> None:
    x, models = blobs().test.x, [NORMALISED.new(seed) for seed in range(240)]
    expected = [NORMALISED.outputs(model, x) for model in models]
    found = in_threads(lambda n: NORMALISED.outputs(models[n], x), len(models))
    assert all(map(torch.equal, found, expected))


def test_a_network_is_copied_whole_while_another_thread_uses_it() -> None:
    x, models = blobs().test.x, [NORMALISED.new(seed) for seed in range(240)]

    def used_or_copied(n: int) -> Tensor:
        if n % 2:
            return NORMALISED.outputs(models[n], x)
        made: Tensor = NORMALISED.to(torch.device("cpu")).module(models[n])(x)
        return made

    expected = [NORMALISED.outputs(model, x) for model in models]
    assert all(map(torch.equal, in_threads(used_or_copied, len(models)), expected))


def test_settings_of_attention_and_warnings_are_those_of_before_and_of_one_thread() -> None:
    net, before = Net(Attention), (flags(), list(warnings.filters))
    engines = [kind(net, blobs()) for kind in (Sequential, Vectorised, Vectorised)]
    expected = [trained(engine, net, seed=0) for engine in engines]
    found = in_threads(lambda n: trained(engines[n % 3], net, seed=0), 18)
    assert all(torch.equal(update, expected[n % 3]) for n, update in enumerate(found))
    assert (flags(), list(warnings.filters)) == before


def flags() -> tuple[bool, bool, bool]:
    cuda: Any = torch.backends.cuda
    return (
        cuda.flash_sdp_enabled(),
        cuda.mem_efficient_sdp_enabled(),
        cuda.math_sdp_enabled(),
    )
