"""Reply columns, filled as clients finish."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterable, Mapping
from math import prod

import torch
from torch import Tensor

from umbel.checks import UsageError
from umbel.engines.replies.validation import assemble, models_type, promises, wrong_form
from umbel.flow import Replies, Request, places


class Columns:
    """Tensors (N, ...) made when the first rows arrive, so that no row is ever held twice."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.promises = promises(request)
        self.tensors: dict[str, Tensor] = {}

    @classmethod
    def shared(cls, request: Request) -> Columns:
        """Columns of the promised forms, in memory that forked processes can write into, too."""
        columns = cls(request)
        for name, promise in columns.promises.items():
            shape = (len(request.clients), *promise.shape)
            columns.tensors[name] = shared(shape, promise.dtype or models_type(request))
        return columns

    def put(self, positions: Tensor, rows: Mapping[str, Tensor]) -> None:
        """Store rows (len(positions), ...) of every column at their positions.

        Raises `UsageError` if they do not have the form that `Work.promises` states.
        """
        fault = wrong_form(rows, self.promises)
        if fault is not None:
            raise UsageError(
                f"{type(self.request.work).__name__}: {fault}, which its `promises` states"
            )
        at, num_rows = places(positions), len(self.request.clients)
        for name, values in rows.items():
            column = values.to("cpu", self.promises[name].dtype or models_type(self.request))
            if name not in self.tensors:
                # A single chunk of all clients: its tensor is the column, without a copy.
                if at == slice(0, num_rows):
                    self.tensors[name] = column
                    continue
                self.tensors[name] = column.new_empty(num_rows, *column.shape[1:])
            self.tensors[name][at] = column

    def replies(self) -> Replies:
        """Return the replies of all clients; if there are none, every column has shape (0, ...)."""
        if not len(self.request.clients):
            return assemble(self.request, [])
        return Replies(self.request.clients, self.tensors)


def in_chunks(
    request: Request,
    chunks: Iterable[Tensor],
    answer: Callable[[Request, Tensor], Mapping[str, Tensor]],
) -> Replies:
    """The replies to a request, of which `answer` gives those at some positions: a chunk."""
    columns = Columns(request)
    for positions in chunks:
        columns.put(positions, answer(request, positions))
    return columns.replies()


def shared(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A tensor of zeros in memory that is shared with all processes forked from this one.

    The memory has no name and no file, so nothing is left behind however the processes end. Raises
    `MemoryError` if there is too little.
    """
    if not prod(shape):
        return torch.empty(shape, dtype=dtype)
    size = prod(shape) * dtype.itemsize
    try:
        memory = mmap.mmap(-1, size)
    except OSError as error:
        raise MemoryError(f"replies of the clients take {size:,} bytes") from error
    return torch.frombuffer(memory, dtype=dtype).view(shape)
