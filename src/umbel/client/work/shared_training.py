"""Any work with a model of which only a part is shared; the rest stays with the client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from umbel.client.batches import Shard
from umbel.client.layout import Layout
from umbel.client.net import Net
from umbel.client.work.base import MEMORY, Cost, Promise, Work

OF_MODELS, STEPS = ("theta", "models", "moves"), ("update", "gradient")
"""Names of what is sent, and of columns of replies, that have a value for each of a model."""


@dataclass(frozen=True)
class SharedTraining(Work):
    """Do a work with models of the shared part (S,) that is sent, and the client's memory (Q,).

    Updates and gradients in the reply are those of the shared part, and features are 0 in the
    other. The reply of a work that trains has the memory after training, too.
    """

    relays: ClassVar[bool] = True
    around: ClassVar[str] = "local"

    local: Work  #: the work with whole models
    kept: tuple[str, ...]  #: patterns of the values that stay with the client

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        here, memory = sent[MEMORY].device, sent[MEMORY]
        shared, own = (rows.to(here) for rows in parted(net.layout, self.kept))
        whole = {name: value for name, value in sent.items() if name != MEMORY}
        for name in whole.keys() & {*OF_MODELS}:
            rows = whole[name]
            mine = memory.expand(*rows.shape[:-1], -1)
            mine = torch.zeros_like(mine) if name == "moves" else mine
            whole[name] = joined(rows, mine, shared, own)
        reply = self.local(net, shard, whole)
        answer = {n: v.index_select(0, shared) if n in STEPS else v for n, v in reply.items()}
        if "feature" in reply:
            coordinates = sent.get("coordinates", torch.arange(net.layout.num_values, device=here))
            answer["feature"] = reply["feature"] * ~torch.isin(coordinates, own)
        if "update" in reply:
            answer[MEMORY] = memory + reply["update"].index_select(0, own)
        return answer

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        (size,) = sent[MEMORY]
        whole = {
            name: torch.Size([*shape[:-1], shape[-1] + size]) if name in OF_MODELS else shape
            for name, shape in sent.items()
            if name != MEMORY
        }
        found = self.local.promises(whole)
        for name in found.keys() & {*STEPS}:
            (width,) = found[name].shape
            found[name] = Promise((width - size,))
        return {**found, MEMORY: Promise((size,))} if "update" in found else found

    def widths(self, layout: Layout) -> tuple[int, ...]:
        """Return the numbers of values of the shared part, and of the whole model."""
        return len(parted(layout, self.kept)[0]), layout.num_values

    def cost(self, num_examples: int, sent: Mapping[str, torch.Size]) -> Cost:
        return self.local.cost(num_examples, sent)


def parted(layout: Layout, kept: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """Positions in theta of the shared values (S,), and of those that stay with clients (Q,)."""
    own = layout.mask(kept, "kept")
    return (~own).nonzero().flatten(), own.nonzero().flatten()


def joined(shared: Tensor, own: Tensor, places: Tensor, own_places: Tensor) -> Tensor:
    """theta (..., P) from its parts (..., S) and (..., Q), by their positions."""
    order = torch.cat([places, own_places])
    back = torch.empty_like(order).index_copy_(0, order, torch.arange(len(order)).to(order))
    return torch.cat([shared, own], dim=-1).index_select(-1, back)
