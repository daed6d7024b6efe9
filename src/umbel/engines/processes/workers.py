"""Chunks of clients, computed by several processes of this machine."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, is_dataclass
from math import ceil, inf
from time import perf_counter

import torch
from torch import Tensor

from umbel.checks import WorkersDiedError, check
from umbel.engines.columns import Columns, in_chunks, shared
from umbel.engines.devices import enough_memory
from umbel.engines.processes.crew import MOST_TASKS, Crew, DeathsError
from umbel.engines.sequential import Sequential
from umbel.engines.vectorised import Vectorised
from umbel.flow import Replies, Request
from umbel.summary import few

log = logging.getLogger(__name__)

PAYS = 0.1
"""Seconds of work for which it pays to fork a process; forking takes about a tenth of this."""


def can_fork() -> bool:
    """Return True if forked processes may compute on this system."""
    return hasattr(os, "fork") and sys.platform != "darwin"


OUT_OF_MEMORY = ("signal 9", "signal 7")
"""Ends of processes if the machine, or a container's shared memory, is full."""


@dataclass
class Workers:
    """An engine whose chunks are computed by several processes, with a thread each.

    The engine within decides on the chunks, so that the replies are the same, bit for bit, however
    many processes there are. They are forked for a request, and end with it: the examples, the
    network and the request are in their memory already and are never copied, and rows are written
    to where all see them. Short requests are answered without forking. Raises `UsageError` for
    fewer than one worker, and for an engine whose clients are not in this process.
    """

    engine: Sequential | Vectorised
    count: int  # processes, this one among them
    seconds: dict[str, float] = field(default_factory=dict)  # of one client, by kind of work

    def __post_init__(self) -> None:
        kind = type(self.engine).__name__
        expected = "an engine of this process: a Sequential or a Vectorised"
        check(isinstance(self.engine, Sequential | Vectorised), "engine", kind, expected)
        fine = isinstance(self.count, int) and not isinstance(self.count, bool) and self.count >= 1
        check(fine, "count", self.count, "a whole number of processes, 1 or more")

    def send(self, request: Request) -> Replies:
        chunks = list(self.engine.chunks(request))
        if not chunks:
            return Columns(request).replies()
        kind = _kind(request.work)
        expected = self.seconds.get(kind, inf) * len(request.clients)
        # By the last request of this kind: as many processes as have PAYS seconds of work each.
        processes = min(self.count, len(chunks), max(1, ceil(min(expected / PAYS, self.count))))
        with one_thread(), enough_memory(lambda: self.engine.too_large(request, processes)):
            if processes > 1:
                replies, seconds = self._together(request, chunks, processes)
            else:
                replies, seconds = self._alone(request, chunks)
        self.seconds[kind] = seconds / len(request.clients)
        return replies

    def _alone(self, request: Request, chunks: list[Tensor]) -> tuple[Replies, float]:
        began = perf_counter()
        return in_chunks(request, chunks, self.engine.answer), perf_counter() - began

    def _together(
        self, request: Request, chunks: list[Tensor], processes: int
    ) -> tuple[Replies, float]:
        size = -(-len(chunks) // MOST_TASKS)
        tasks = [chunks[first : first + size] for first in range(0, len(chunks), size)]
        columns = Columns.shared(request)
        # Written by workers, read here: seconds of each task, for the next request's decision.
        spent = shared((len(tasks),), torch.float64)

        def do(task: int) -> None:
            began = perf_counter()
            for positions in tasks[task]:
                columns.put(positions, self.engine.answer(request, positions))
            spent[task] = perf_counter() - began

        try:
            crew = Crew(do, len(tasks), processes)
        except OSError as error:
            log.warning("no workers: %s", error)
            self.count = 1
            return self._alone(request, chunks)
        try:
            crew.run()
        except DeathsError as error:
            clients = sorted(request.clients[torch.cat(tasks[error.task])].tolist())
            short = error.how in OUT_OF_MEMORY
            needs = self.engine.too_large(request, processes) if short else ""
            hint = f", as the system does if memory is short: {needs}" if short else ""
            raise WorkersDiedError(
                f"clients of numbers {few([*map(str, clients)])}: each process that worked for "
                f"them died ({error.how}){hint}; with engine.workers = 1 this process works "
                "for them"
            ) from None
        if crew.alone:
            self.count = 1
        elif crew.allowed and crew.allowed < processes:
            self.count = crew.allowed  # others would be missing at the next request, too
        return columns.replies(), float(spent.sum())


def _kind(work: object) -> str:
    """The settings that decide how long work takes: all except floats, such as learning rates."""
    if not is_dataclass(work):
        return repr(work)
    values = [getattr(work, each.name) for each in fields(work)]
    parts = [_kind(value) for value in values if not isinstance(value, float)]
    return f"{type(work).__name__}({', '.join(parts)})"


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread inside: sums come out the same however many cores there are."""
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
