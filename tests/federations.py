"""Small federations with planted groups, and what tests ask of them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import nn

from umbel.algorithms import Sattler
from umbel.algorithms.base import Setup
from umbel.client.layout import Entry, Layout
from umbel.client.net import Net
from umbel.data.federation import Federation
from umbel.flow import Flow, Replies, Request, Rows, T
from umbel.server.ask import Context

SIZES = (5, 17, 9, 26, 12, 7)

NEEDS_EVERYONE = (Sattler,)  # methods that refuse a participation below 1


def blobs(
    sizes: Sequence[int] = SIZES,
    num_groups: int = 2,
    seed: int = 0,
    shape: tuple[int, ...] = (6,),
    num_classes: int = 3,
) -> Federation:
    """Gaussian blobs whose labels are renamed differently in each group; clients take turns."""
    rng = np.random.default_rng(seed)
    centres = rng.normal(scale=2, size=(num_classes, *shape))
    train, test, groups = [], [], []
    for client, size in enumerate(sizes):
        group = client % num_groups
        y = rng.integers(0, num_classes, size + 8)
        x = (centres[y] + rng.normal(size=(size + 8, *shape))).astype(np.float32)
        y = (y + group) % num_classes
        train.append((x[:size], y[:size]))
        test.append((x[size:], y[size:]))
        groups.append(group)
    return Federation.from_arrays(train, test, groups=groups, num_classes=num_classes)


def mlp(num_inputs: int = 6, num_outputs: int = 3, dtype: torch.dtype = torch.float32) -> Net:
    """A small fully connected network."""
    return Net(
        lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(num_inputs, 8), nn.ReLU(), nn.Linear(8, num_outputs)
        ).to(dtype)
    )


def layout(num_weights: int) -> Layout:
    """The layout of a model that is one vector."""
    return Layout((Entry("w", torch.Size([num_weights])),), ())


def setup(num_clients: int, num_weights: int = 1, seed: int = 0) -> Setup:
    """What a method knows before the first round; model k is filled with 10 k."""
    return Setup(
        num_clients,
        100,
        1.0,
        layout(num_weights),
        lambda number: torch.full((num_weights,), 10.0 * number),
        seed,
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
    return Context(number, num_rounds, clients, num_clients, 0, layout(num_weights))


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
