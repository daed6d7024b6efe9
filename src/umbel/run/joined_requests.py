"""Requests of several runs that are joined into one, where no run's results change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

import torch

from umbel.client.optimizers import SGD
from umbel.client.work import LocalTraining, SharedTraining, Work
from umbel.client.work.schemes import Plain
from umbel.engines.vectorised import ROWS
from umbel.flow import Request, Rows

MOST_WASTED = 700_000
"""Largest padding of a step, in values times examples, that costs less time than separate calls."""


def padded(request: Request) -> Request:
    """Repeat the last client of a request until the next run's rows begin aligned.

    Where rows begin in memory decides how they are summed, and so changes the last bits.
    """
    count = len(request.clients)
    return request.pick(torch.arange(_rounded_up(count)).clamp(max=count - 1))


def _rounded_up(count: int) -> int:
    # `count`, rounded up to a multiple of ROWS.
    return -(-count // ROWS) * ROWS


def _is_little_padded(request: Request, examples: int) -> bool:
    """Return True if joining saves more time than the padding costs.

    `examples` is the largest number of examples of a client.
    """
    count = len(request.clients)
    steps, width = request.work.batching.size(examples)
    values = sum(rows.table.shape[1:].numel() for rows in request.each.values())
    return (_rounded_up(count) - count) * values * (width if steps else examples) <= MOST_WASTED


def merged(requests: Sequence[Request], first_clients: Sequence[int]) -> Request:
    """Join equal requests, each for the clients of its own run, into one."""
    sizes = [len(request.clients) for request in requests]
    whose = torch.repeat_interleave(torch.arange(len(requests)), torch.tensor(sizes))
    each = {}
    for name in requests[0].each:
        tables = [request.each[name].table for request in requests]
        # Tables are put below each other: indices into the k-th one grow by the rows before it.
        starts = torch.tensor(list(accumulate(map(len, tables), initial=0))[:-1])
        index = torch.cat([request.each[name].index for request in requests])
        each[name] = Rows(torch.cat(tables), index + starts[whose])
    # (N,) the number of client 0 of each one's run among the clients of all runs.
    firsts = torch.tensor(first_clients)[whose]
    return replace(
        requests[0],
        clients=torch.cat([request.clients for request in requests]) + firsts,
        seeds=[seed for request in requests for seed in request.seeds],
        each=each,
        reduction=None,
    )


def kind_of(number: int, request: Request, examples: int) -> object:
    """A key that is equal for requests of several runs that can be joined.

    Tensors shared by all clients are computed differently from rows for each client; the same holds
    for a request to a single client, and for one model that all are sent, unless it is trained.
    Such requests are not joined. Neither are requests whose padding would take longer than a
    separate call.
    """
    if request.shared or len(request.clients) < 2 or not _is_little_padded(request, examples):
        return number
    if not trains(request) and not _are_rows(request):
        return number
    each = tuple((name, rows.table.shape[1:]) for name, rows in sorted(request.each.items()))
    return request.work, each


def trains(request: Request) -> bool:
    """Return True if the work is several steps of SGD, which the kernel of linear layers does.

    Other works compute losses and gradients at one model that all are sent. These have other bits
    with clients of other runs beside them.
    """
    work: Work | None = request.work
    if type(work) is SharedTraining:
        work = work.local
    # Subclasses may do more, so only these very classes are taken.
    if type(work) is not LocalTraining or type(work.optimizer) is not SGD:
        return False
    if work.scheme != Plain():
        return False
    # A single step is computed from the one model. Clients with one example take the fewest steps.
    return work.batching.size(1)[0] > 1


def _are_rows(request: Request) -> bool:
    """Return True if no tensor is the same for all clients."""
    every = [rows.index for rows in request.each.values()]
    return bool(every) and not any((index == index[0]).all() for index in every)
