"""Measures the costs of a round: bytes, gradients, losses and seconds."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod
from time import perf_counter

import numpy as np

from umbel.client.work import MEMORY
from umbel.client.work.base import Cost, cost_of
from umbel.data.splits import Split
from umbel.engines.storage import sizes_asked
from umbel.flow import Engine, Flow, Layer, Replies, Request, ask
from umbel.summary import in_short


@dataclass(frozen=True)
class Spent:
    """The cost of requests, all clients together."""

    bytes_down: int = 0  #: to clients
    bytes_up: int = 0  #: from clients
    cost: Cost | None = None  #: of those that answered; None: not known
    seconds: float = 0.0  #: from asking to having all replies


@dataclass
class Metered(Layer):
    """Counts bytes, costs of the work, and seconds.

    Clients' memory (`MEMORY`) is not counted: deployed clients keep it, so that it is not sent.
    """

    engine: Engine
    train: Split | None  # the clients' training examples; None: not known
    bytes_down: int = 0
    bytes_up: int = 0
    cost: Cost = field(default_factory=Cost)
    seconds: float = 0.0

    __repr__ = in_short

    def ask(self, request: Request) -> Flow[Replies]:
        replies = yield from self.again(request)
        to_each = sum(tensor.nbytes for tensor in request.shared.values())
        to_each += sum(
            prod(rows.table.shape[1:]) * rows.table.itemsize
            for name, rows in request.each.items()
            if name != MEMORY
        )
        # As on a network: each client gets its own copy of shared tensors.
        self.bytes_down += to_each * len(request.clients)
        self.bytes_up += sum(c.nbytes for n, c in replies.columns.items() if n != MEMORY)
        if self.train is not None:
            self.cost += self._cost(request, replies, self.train)
        return replies

    def _cost(self, request: Request, replies: Replies, train: Split) -> Cost:
        """Return the cost of the work for the clients that answered."""
        # Replies are not checked yet: they may name clients that nobody has asked.
        answered = np.isin(request.clients.numpy(), replies.clients.numpy())
        # At least 1: clients may not train on no examples.
        # Clients of one size cost the same: it is computed once for each size.
        different, counts = np.unique(
            sizes_asked(train, request)[answered].clip(min=1), return_counts=True
        )
        shapes = request.shapes
        each = zip(different.tolist(), counts.tolist(), strict=True)
        return sum((cost_of(request.work, size, shapes) * count for size, count in each), Cost())

    def again(self, request: Request) -> Flow[Replies]:
        """Send the same request again: its time counts, but its bytes are not counted twice."""
        start = perf_counter()
        replies = yield from ask(self.engine, request)
        self.seconds += perf_counter() - start
        return replies

    def take(self) -> Spent:
        """Return the costs since the last call, and begin to count anew."""
        cost = None if self.train is None else self.cost
        spent = Spent(self.bytes_down, self.bytes_up, cost, self.seconds)
        self.bytes_down, self.bytes_up, self.cost, self.seconds = 0, 0, Cost(), 0.0
        return spent
