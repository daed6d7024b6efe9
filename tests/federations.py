"""Small federations with planted groups, and what tests ask of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from umbel import testing
from umbel.algorithms.base import Setup
from umbel.client.layout import Entry, Layout
from umbel.data.federation import Federation
from umbel.flow import Flow, Replies, Request, Rows, T
from umbel.server.ask import Context
from umbel.testing import mlp as mlp

SIZES = (5, 17, 9, 26, 12, 7)


def blobs(sizes: Sequence[int] = SIZES, **more: Any) -> Federation:
    """`umbel.testing.blobs`, of fewer clients."""
    return testing.blobs(sizes, **more)


def layout(num_weights: int) -> Layout:
    """The layout of a model that is one vector."""
    return Layout((Entry("w", torch.Size([num_weights])),), ())


def setup(num_clients: int, num_weights: int = 1, seed: int = 0) -> Setup:
    """What a method knows before the first round; model k is filled with 10 k."""
    return Setup(
        num_clients=num_clients,
        num_rounds=100,
        participation=1.0,
        layout=layout(num_weights),
        new_model=lambda number: torch.full((num_weights,), 10.0 * number),
        seed=seed,
    )


def context(
    cohort: Sequence[int],
    num_clients: int,
    num_weights: int = 1,
    number: int = 0,
    num_rounds: int = 100,
) -> Context:
    """What a round knows, for hand-worked rounds."""
    clients = torch.tensor(cohort)
    return Context(
        round=number,
        num_rounds=num_rounds,
        cohort=clients,
        num_clients=num_clients,
        seed=0,
        layout=layout(num_weights),
    )


def each_its_own(table: torch.Tensor) -> Rows:
    """Client n gets row n of `table` (N, ...)."""
    return Rows(table, torch.arange(len(table)))


def requested(flow: Flow[T]) -> Request:
    """The first thing the flow asks."""
    return next(flow)


def answered(flow: Flow[T], clients: Sequence[int], **columns: object) -> T:
    """What the flow returns when its last request is answered like this."""
    replies = Replies(
        torch.tensor(clients), {name: torch.as_tensor(rows) for name, rows in columns.items()}
    )
    try:
        flow.send(replies)
    except StopIteration as stop:
        result: T = stop.value
        return result
    raise AssertionError("the flow asks for more")
