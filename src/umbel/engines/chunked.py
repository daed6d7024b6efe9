"""Engines that answer a request in chunks, none of which depends on another."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol, runtime_checkable

from torch import Tensor

from umbel.engines.columns import Columns
from umbel.flow import Replies, Request


@runtime_checkable
class Chunked(Protocol):
    """Computes chunks of clients; its user decides which process computes which chunk, and when."""

    def too_large(self, request: Request, processes: int = 1) -> str:
        """The error of a request for which memory is too short, in so many processes."""
        ...

    def chunks(self, request: Request) -> Iterator[Tensor]:
        """Positions in the request of the clients that are computed together, most work first."""
        ...

    def answer(self, request: Request, positions: Tensor) -> dict[str, Tensor]:
        """The rows (len(positions), ...) of every column for the clients of a chunk."""
        ...


def answer_all(engine: Chunked, request: Request) -> Replies:
    """Compute one chunk after another."""
    columns = Columns(request)
    for positions in engine.chunks(request):
        columns.put(positions, engine.answer(request, positions))
    return columns.replies()
