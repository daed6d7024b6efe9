"""Local training alone, worked by hand: every client keeps a model of its own."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.federations import answered, context, requested, setup
from umbel.algorithms import (
    IFCA,
    FedEM,
    FedLEASE,
    FixedClusters,
    Joint,
    LocalOnly,
    PFedMe,
    RandomClusters,
)
from umbel.algorithms.base import Algorithm, State
from umbel.checks import UsageError


def test_local_only_moves_each_client_by_its_own_update() -> None:
    state = State(torch.tensor([[1.0], [2.0], [3.0]]), torch.arange(3))
    flow = LocalOnly().round(state, context([0, 2], 3))
    request = requested(flow)
    assert [request.sent_to(n)["theta"].tolist() for n in range(2)] == [[1.0], [3.0]]
    after = answered(flow, [2, 0], update=[[0.5], [-4.0]], num_examples=[1, 9])
    assert after.models.tolist() == [[-3.0], [2.0], [3.5]]
    assert after.labels.tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    "method",
    [LocalOnly(), PFedMe(), FedLEASE(), FixedClusters(tuple(range(1000))), RandomClusters(1000)],
    ids=lambda method: type(method).__name__,
)
def test_more_models_than_memory_holds_are_refused_before_they_are_made(
    method: Algorithm[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("umbel.checks.SMALL", 1000)
    monkeypatch.setattr("umbel.checks.free_memory", lambda: 2000)
    with pytest.raises(UsageError, match=r"1,000 models of 1 values: .* GiB is more than"):
        method.init(setup(1000))


@pytest.mark.parametrize("method", [IFCA(10), Joint(10), FedEM(10)], ids=type)
def test_more_numbers_of_clients_than_memory_holds_are_refused_too(
    method: Algorithm[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("umbel.checks.SMALL", 1000)
    monkeypatch.setattr("umbel.checks.free_memory", lambda: 2000)
    said = r"what 1,000 clients say of 10 models: .* GiB is more than"
    with pytest.raises(UsageError, match=said):
        method.init(setup(1000))


def test_local_only_starts_everyone_from_the_same_model() -> None:
    assert LocalOnly().init(setup(3)).models.tolist() == [[0.0], [0.0], [0.0]]
