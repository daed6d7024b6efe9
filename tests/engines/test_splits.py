"""Every engine evaluates on the examples that it is asked about."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import umbel
from tests.engines.test_equality import assert_same, fast, request
from umbel.client.net import Net
from umbel.client.work import Evaluation, MixtureEvaluation, Work
from umbel.data.federation import Federation
from umbel.engines import Sequential, Vectorised
from umbel.testing import mlp

VALIDATED: list[Work] = [Evaluation("validation"), MixtureEvaluation("validation")]


def federation(sizes: tuple[int, ...] = (5, 0, 9, 1, 0)) -> Federation:
    """Clients with as many validation examples; the last has none, as one in the middle."""
    rng = np.random.default_rng(0)

    def some(size: int) -> tuple[Any, Any]:
        return rng.normal(size=(size, 6)).astype(np.float32), rng.integers(0, 3, size)

    return Federation.from_arrays(
        [some(n + 3) for n in range(len(sizes))],
        [some(4) for _ in sizes],
        validation=[some(size) for size in sizes],
        num_classes=3,
    )


@pytest.mark.parametrize("work", VALIDATED, ids=str)
def test_engines_agree_on_validation_examples(work: Work) -> None:
    net, clients = mlp(dtype=torch.float64), federation()
    asked = request(work, net, range(5))
    expected = Sequential(net, clients).send(asked)
    assert expected.columns["num_examples"].tolist() == [5, 0, 9, 1, 0]
    for engine in fast(net, clients):
        assert_same(engine.send(asked), expected, 1e-12)


@pytest.mark.parametrize("kind", [Sequential, Vectorised])
def test_validation_of_clients_without_such_is_refused(kind: Callable[..., Any]) -> None:
    net = mlp()
    clients = umbel.testing.blobs()
    with pytest.raises(umbel.UsageError, match="set a validation_fraction"):
        kind(net, clients).send(request(Evaluation("validation"), net, [0]))


def test_what_the_network_does_not_take_is_found_among_validation_examples_too() -> None:
    tokens = np.zeros((4, 3), dtype=np.int64)
    wrong = tokens.copy()
    wrong[1, 2] = 9
    clients = Federation.from_arrays(
        [(tokens, np.arange(4) % 2)] * 2,
        [(tokens, np.arange(4) % 2)] * 2,
        validation=[(tokens, np.arange(4) % 2), (wrong, np.arange(4) % 2)],
    )
    net = Net(lambda: nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(6, 2)))
    with pytest.raises(umbel.UsageError, match="client 1: "):
        list(umbel.Run(umbel.FedAvg(), clients, net).rounds(1))
