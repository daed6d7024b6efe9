"""Mixtures of experts over a network: FedLEASE on nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from flwr.app import Message
from torch import nn

from tests.algorithms.test_contract import ADAPTED, LOCAL
from tests.flower.grid import MemoryGrid
from tests.flower.small import SMALL, grid_of, last_state
from umbel import Limits
from umbel.client.work import Routed
from umbel.data.sources import Sources
from umbel.flower import messages
from umbel.flower.errors import RefusedError
from umbel.flower.exchange import HELLO, WORK
from umbel.flower.handshake import greet, site_in
from umbel.networks import LoRA, Model
from umbel.testing import assert_same_state


@dataclass(frozen=True)
class Adapted(Model):
    """A frozen layer with an adapter, and a head."""

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        body = LoRA(nn.Linear(torch.Size(input_shape).numel(), 8), rank=2)
        return nn.Sequential(nn.Flatten(), body, nn.ReLU(), nn.Linear(8, num_outputs))


EXPERIMENT = replace(
    SMALL,
    model=Adapted(),
    algorithm=ADAPTED["fedlease, two experts"],
    limits=Limits(max_norm_ratio=1e9),  # by default steps are bounded over Flower only
)


def test_the_same_experts_and_routers_as_in_this_process(tmp_path: Path) -> None:
    found = last_state(EXPERIMENT, grid_of(EXPERIMENT, tmp_path))
    assert len(found.models) == 2
    assert_same_state(found, last_state(EXPERIMENT, None), 1e-4)


def asked_of_a_node(grid: MemoryGrid, work: Routed, size: int) -> list[str]:
    """The clients of a node that answer this work on a model of so many values."""
    node = next(iter(grid.apps))
    (name,) = grid.push_messages([Message(greet(), node, HELLO)])
    (hello,) = grid.pull_messages([name])
    client = site_in(hello.content).clients[0]
    digest = EXPERIMENT.open(Sources.default()).net.frozen_digest
    asked = messages.Asked(work, [client], [1], {"theta": torch.zeros(size)}, {}, {}, (), digest)
    (name,) = grid.push_messages([Message(messages.ask(asked), node, WORK)])
    (reply,) = grid.pull_messages([name])
    return messages.answer_in(reply.content, ["update", "num_examples"], 10**6).clients


def test_a_node_refuses_a_mixture_of_another_size(tmp_path: Path) -> None:
    grid = grid_of(EXPERIMENT, tmp_path)
    with pytest.raises(RefusedError, match=r"theta: \(3,\) .* a model has 426 or 570 values"):
        asked_of_a_node(grid, Routed(LOCAL, 2), 3)
    # What is a model's own part is no whole one without the others.
    with pytest.raises(RefusedError, match="theta: 426 is not 570, the size of such a model"):
        asked_of_a_node(grid, Routed(LOCAL, 2), 426)
    assert len(asked_of_a_node(grid, Routed(LOCAL, 2), 570)) == 1
