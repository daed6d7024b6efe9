"""One client after another: the reference that every other engine must agree with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umbel.client.batches import SLICE, Plan, Shard, Step, Steps, in_order
from umbel.client.net import Net
from umbel.client.seeding import drawing_from
from umbel.client.work import Work
from umbel.data.federation import Federation
from umbel.data.splits import Split
from umbel.engines.columns import in_chunks
from umbel.engines.devices import enough_memory, repeatable
from umbel.engines.replies.validation import reply_of
from umbel.engines.shortage import shortage
from umbel.engines.storage import Storage, store
from umbel.flow import Replies, Request
from umbel.preflight.properties import evaluates_apart, mixes

JOINED = 100
"""Largest number of examples of clients that are joined: larger passes of convolutions are slower,
and from 128 examples on a softmax rounds otherwise (`umbel.client.objectives.MANY`)."""


class Sequential:
    """An engine that runs one client after another, without padding; it takes any module.

    In evaluations, small clients that are sent one model go through it together.

    Give it to `Run` as `engine`, or have `EngineSettings` choose. A `net` that does not fit the
    federation raises `UsageError` when the run begins.
    """

    def __init__(
        self, net: Net, federation: Federation, device: torch.device | str = "cpu"
    ) -> None:
        self.device = torch.device(device)
        self.given, self.federation = net, federation
        self.storage = store(federation, net.dtype, self.device)

    @cached_property
    def net(self) -> Net:
        """The network, which is tried when it is first needed: then it is known to fit."""
        net = self.given.to(self.device).one_by_one()
        # Full gradients in slices are exact only if examples do not see each other.
        if net.way.whole is not None or int(self.storage.train.sizes.max()) <= SLICE:
            return net
        return net.whole(mixes(self.given, self.federation))

    def too_large(self, request: Request, processes: int = 1) -> str:
        """Return the error of a request for which memory is too short."""
        kept = self.net.modules.values_per_example(self.storage.train.x[:1])
        return shortage(request, self.net, self.storage, kept, 1, processes)

    def send(self, request: Request) -> Replies:
        # Moved once; each client's own tensors follow when it is its turn.
        shared = {name: tensor.to(self.device) for name, tensor in request.shared.items()}
        with repeatable(self.device), enough_memory(lambda: self.too_large(request)):
            here = replace(request, shared=shared)
            return in_chunks(here, self.chunks(here), self.answer)

    @cached_property
    def joins(self) -> bool:
        """Whether a client's outputs in evaluation are the same beside other clients' examples."""
        return evaluates_apart(self.given, self.federation)

    def chunks(self, request: Request) -> Iterator[Tensor]:
        """Positions in the request, clients with most examples first.

        Clients are joined if the work and the network allow it, they are sent equal tensors, and
        they have at most `JOINED` examples. Any other client is alone.
        """
        _ = self.net  # tried once, before workers are forked that would each try it
        positions = self.storage.by_size(request)
        if len(positions) == 1 or not (request.work.joins and self.joins):
            return (position[None] for position in positions)
        sizes = self.storage.split(request).sizes[request.clients.numpy()].tolist()
        sent = list(zip(*(rows.index.tolist() for rows in request.each.values()), strict=True))
        chunks: list[list[int]] = []
        # The chunk that was begun last for each set of tensors, and its number of examples.
        begun: dict[object, tuple[list[int], int]] = {}
        for n in positions.tolist():
            key = sent[n] if sent else None
            chunk, taken = begun.get(key, ([], JOINED))
            if taken + sizes[n] > JOINED or not sizes[n]:
                chunk, taken = [], 0
                chunks.append(chunk)
            chunk.append(n)
            begun[key] = chunk, taken + sizes[n]
        return map(torch.tensor, chunks)

    def answer(self, request: Request, positions: Tensor) -> dict[str, Tensor]:
        """The replies of the clients of a chunk, as rows."""
        if len(positions) == 1:
            return answer_one(self.net, self.storage, request, positions)
        split, first = self.storage.split(request), int(positions[0])
        shard = _joined(split, request.clients[positions].numpy())
        sent = {name: value.to(self.device) for name, value in request.sent_to(first).items()}
        reply = reply_of(request.work, self.net, shard, sent)
        return {name: value.detach() for name, value in reply.items()}


def answer_one(
    net: Net, storage: Storage, request: Request, positions: Tensor
) -> dict[str, Tensor]:
    """Compute the reply of the client at the one position, as rows (1, ...)."""
    (n,) = positions.tolist()
    split = storage.split(request)
    device, seed = split.x.device, request.seeds[n]
    shard = _shard(split, request.work, int(request.clients[n]), seed)
    sent = {name: value.to(device) for name, value in request.sent_to(n).items()}
    # Dropout and the like draw from the client's own seed, in any order of clients.
    with drawing_from(seed, device):
        reply = reply_of(request.work, net, shard, sent)
    return {name: value[None].detach() for name, value in reply.items()}


def _shard(split: Split, work: Work, client: int, seed: int) -> Shard:
    """The client's examples in exact batches, without padding."""
    start, size, device = int(split.offsets[client]), int(split.sizes[client]), split.x.device
    plan = work.batching.plan(size, seed)
    return Shard(
        split.x,
        split.y,
        torch.tensor(size, device=device),
        Steps(_rows(plan, start, device), _steps(plan, start, device)),
        _steps(in_order(size), start, device),
    )


def _joined(split: Split, clients: NDArray[np.int64]) -> Shard:
    """The examples of several clients, one after another, in one batch without mini-batches."""
    sizes, device = split.sizes[clients], split.x.device
    ranges = zip(split.offsets[clients].tolist(), sizes.tolist(), strict=True)
    rows = torch.cat([torch.arange(start, start + size) for start, size in ranges]).to(device)
    return Shard(
        split.x,
        split.y,
        torch.from_numpy(sizes).to(device),
        Steps(rows.new_empty(0, 1), []),
        [Step(rows, clients=sizes.tolist())],
    )


def _rows(plan: Plan, start: int, device: torch.device) -> Tensor:
    return torch.from_numpy(np.where(plan >= 0, plan + start, ~start)).to(device)


def _steps(plan: Plan, start: int, device: torch.device) -> list[Step]:
    return [Step(torch.from_numpy(step[step >= 0] + start).to(device)) for step in plan]
