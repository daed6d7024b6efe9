"""What a round costs: bytes and seconds."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from time import perf_counter

from umbel.client.work import MEMORY
from umbel.flow import Engine, Replies, Request


@dataclass
class Metered:
    """Counts the bytes and the seconds.

    What clients remember is not counted: deployed, it stays where it is.
    """

    engine: Engine
    bytes_down: int = 0  # to all clients together
    bytes_up: int = 0
    seconds: float = 0.0  # from asking to having all replies

    def send(self, request: Request) -> Replies:
        replies = self.again(request)
        to_each = sum(tensor.nbytes for tensor in request.shared.values())
        to_each += sum(
            prod(rows.table.shape[1:]) * rows.table.itemsize
            for name, rows in request.each.items()
            if name != MEMORY
        )
        self.bytes_down += to_each * len(request.clients)
        self.bytes_up += sum(c.nbytes for n, c in replies.columns.items() if n != MEMORY)
        return replies

    def again(self, request: Request) -> Replies:
        """Ask once more what was asked before: it takes time, and is counted as sent only once."""
        start = perf_counter()
        replies = self.engine.send(request)
        self.seconds += perf_counter() - start
        return replies

    def take(self) -> tuple[int, int, float]:
        """Bytes down, bytes up and seconds since the last call."""
        taken = self.bytes_down, self.bytes_up, self.seconds
        self.bytes_down, self.bytes_up, self.seconds = 0, 0, 0.0
        return taken
