"""One client after another: the reference that every other engine must agree with."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property

import numpy as np
import torch
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
from umbel.preflight.properties import mixes


class Sequential:
    """An engine that runs one client after another, without padding; it takes any module.

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

    def chunks(self, request: Request) -> Iterator[Tensor]:
        """Chunks of one position in the request each, clients with most examples first."""
        _ = self.net  # tried once, before workers are forked that would each try it
        return (position[None] for position in self.storage.by_size(request))

    def answer(self, request: Request, positions: Tensor) -> dict[str, Tensor]:
        """The reply of the client at the one position, as rows (1, ...)."""
        return answer_one(self.net, self.storage, request, positions)


def answer_one(
    net: Net, storage: Storage, request: Request, positions: Tensor
) -> dict[str, Tensor]:
    """Compute the reply of the client at the one position, as rows (1, ...)."""
    (n,) = positions.tolist()
    split = storage.split(request.work)
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


def _rows(plan: Plan, start: int, device: torch.device) -> Tensor:
    return torch.from_numpy(np.where(plan >= 0, plan + start, ~start)).to(device)


def _steps(plan: Plan, start: int, device: torch.device) -> list[Step]:
    return [Step(torch.from_numpy(step[step >= 0] + start).to(device)) for step in plan]
