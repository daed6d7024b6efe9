"""Local training of a model of which only a part is shared; the rest stays with the client."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from umbel.client.batches import Shard
from umbel.client.layout import Layout
from umbel.client.net import Net
from umbel.client.work.base import COUNT, MEMORY, Footprint, Promise, Work
from umbel.client.work.local_training import LocalTraining


@dataclass(frozen=True)
class SharedTraining(Work):
    """Train a model that consists of the shared part `theta` (S,) and the client's memory (Q,).

    The reply is the update (S,) of the shared part, and the memory after training.
    """

    local: LocalTraining  #: mini-batches, learning rate and optimizer
    kept: tuple[str, ...]  #: patterns of the values that stay with the client

    @property
    def inner(self) -> Work:
        return self.local

    def __call__(self, net: Net, shard: Shard, sent: Mapping[str, Tensor]) -> dict[str, Tensor]:
        here = sent["theta"].device
        shared, own = (rows.to(here) for rows in parted(net.layout, self.kept))
        theta = joined(sent["theta"], sent[MEMORY], shared, own)
        update = net.descend(theta, shard, self.local.descent)
        return {
            "update": update.index_select(0, shared),
            "num_examples": shard.num_examples,
            MEMORY: sent[MEMORY] + update.index_select(0, own),
        }

    def promises(self, sent: Mapping[str, torch.Size]) -> dict[str, Promise]:
        return {
            "update": Promise(tuple(sent["theta"])),
            "num_examples": COUNT,
            MEMORY: Promise(tuple(sent[MEMORY])),
        }

    def widths(self, layout: Layout) -> tuple[int, ...]:
        """Return the numbers of values of the shared part, and of the whole model."""
        return len(parted(layout, self.kept)[0]), layout.num_values

    def footprint(self, sent: Mapping[str, torch.Size]) -> Footprint:
        return self.local.footprint(sent)


def parted(layout: Layout, kept: tuple[str, ...]) -> tuple[Tensor, Tensor]:
    """Positions in theta of the shared values (S,), and of those that stay with clients (Q,)."""
    own = layout.mask(kept, "kept")
    return (~own).nonzero().flatten(), own.nonzero().flatten()


def joined(shared: Tensor, own: Tensor, places: Tensor, own_places: Tensor) -> Tensor:
    """theta (..., P) from its parts (..., S) and (..., Q), by their positions."""
    order = torch.cat([places, own_places]).argsort()
    return torch.cat([shared, own], dim=-1).index_select(-1, order)
