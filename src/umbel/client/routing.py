"""Positions of the values of low-rank adapters, and of mixtures of adapters.

An adapter consists of two trained matrices, `lora_A` (r, in) and `lora_B` (out, r), as in
`umbel.networks.LoRA` and in the package `peft`. A client that is served a mixture of M experts has
its own expert, the other experts, and a router (2M - 1, in) for every `lora_A`.

Letters: M experts, P values of a model, O values of the other experts' adapters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Size, Tensor
from torch.nn.functional import normalize

from umbel.checks import UsageError
from umbel.client.layout import Entry, Layout

DOWN, UP = "lora_A", "lora_B"
"""Names of the layers that an adapter consists of."""

ROUTER, OTHERS = "router", "others"
"""Names of the further tensors of these layers if they are mixtures."""

NEEDED = (
    "a network with low-rank adapters is needed, whose layers `lora_A` and `lora_B` are nn.Linear "
    "without bias and trained: use umbel.networks.LoRA, or a module of peft"
)


@dataclass(frozen=True)
class Adapter:
    """The two matrices of an adapter."""

    down: Entry  # lora_A (r, in)
    up: Entry  # lora_B (out, r)


@dataclass(frozen=True)
class Routing:
    """The positions of all values in a model whose adapters are mixtures of experts.

    The model's vector holds the client's own values in the order of `own`: all trained parameters
    of the plain model, the routers, and the rest of the plain model. After these come the other
    experts' adapters, in the order of the experts. Raises `UsageError` for a plain model without
    adapters.
    """

    plain: Layout
    num_experts: int  # M, the number of experts

    @cached_property
    def adapters(self) -> tuple[Adapter, ...]:
        """The adapters of the plain model."""
        return adapters_of(self.plain)

    @cached_property
    def routers(self) -> tuple[Entry, ...]:
        """The router of each adapter."""
        slots = 2 * self.num_experts - 1
        return tuple(
            Entry(_beside(each.down, ROUTER), Size((slots, each.down.shape[1])))
            for each in self.adapters
        )

    @cached_property
    def own(self) -> Layout:
        """The layout of the own part: all values that a client's training changes."""
        return Layout(self.plain.weights + self.routers, self.plain.rest, self.plain.norms)

    @cached_property
    def layout(self) -> Layout:
        """The layout of the whole model."""
        others = (
            Entry(_beside(entry, OTHERS), Size((self.num_experts - 1, *entry.shape)))
            for entry in self._matrices
        )
        return Layout(self.own.weights, (*self.plain.rest, *others), self.plain.norms)

    @cached_property
    def num_router_values(self) -> int:
        """The number of values of all routers together."""
        return sum(entry.shape.numel() for entry in self.routers)

    def joined(self, models: Tensor, routers: Tensor) -> Tensor:
        """(M, ...) the own part of each expert's model, from plain models (M, P) and routers."""
        cut = self.plain.num_weights
        return torch.cat([models[:, :cut], routers, models[:, cut:]], 1)

    def parted(self, own: Tensor) -> tuple[Tensor, Tensor]:
        """Plain models (M, P) and routers, from a result of `joined`."""
        cut = self.plain.num_weights
        end = cut + self.num_router_values
        return torch.cat([own[:, :cut], own[:, end:]], 1), own[:, cut:end]

    def others(self, models: Tensor) -> Tensor:
        """(M, O) the adapters of the other experts, for each expert's plain model in (M, P)."""
        every = torch.arange(self.num_experts)
        others = torch.stack([every[every != own] for own in every])  # (M, M - 1)
        columns = columns_of(models, self.plain, [entry.name for entry in self._matrices])
        return torch.cat([each[others].flatten(1) for each in columns], 1)

    def new_routers(self, like: Tensor, seed: int) -> Tensor:
        """(1, ...) routers, initialised like the weights of new linear layers, by the seed."""
        generator = torch.Generator().manual_seed(seed)
        drawn = [
            (2 * torch.rand(entry.shape, generator=generator, dtype=torch.double) - 1).flatten()
            / entry.shape[1] ** 0.5
            for entry in self.routers
        ]
        return torch.cat(drawn)[None].to(like.dtype)

    @property
    def _matrices(self) -> tuple[Entry, ...]:
        return tuple(entry for each in self.adapters for entry in (each.down, each.up))


def adapters_of(layout: Layout) -> tuple[Adapter, ...]:
    """The adapters of a network, with both matrices trained.

    Raises `UsageError` if there are no adapters, if one of the two matrices is missing, and for
    parts of adapters that a mixture can't have, such as biases and embeddings.
    """
    entries = {entry.name: entry for entry in layout.weights}
    found = []
    for name, entry in entries.items():
        parts = name.split(".")
        if not any(part.startswith("lora_") for part in parts):
            continue
        mine, its = (DOWN, UP) if DOWN in parts else (UP, DOWN)
        partner = entries.get(name.replace(mine, its))
        whole = mine in parts and parts[-1] == "weight" and len(entry.shape) == 2
        if not whole or partner is None:
            raise UsageError(f"{name}: is trained, and {NEEDED}")
        if mine == DOWN:
            found.append(Adapter(entry, partner))
    if not found:
        raise UsageError(f"net: no adapters: {NEEDED}")
    return tuple(found)


def columns_of(models: Tensor, layout: Layout, names: Sequence[str]) -> list[Tensor]:
    """The values (N, ...) of the named tensors in each of the models (N, P), flat."""
    entries = layout.weights + layout.rest
    parts = torch.split(models, [entry.shape.numel() for entry in entries], 1)
    by_name = {entry.name: part for entry, part in zip(entries, parts, strict=True)}
    return [by_name[name] for name in names]


def directions(models: Tensor, layout: Layout) -> Tensor:
    """(N, D) the directions of the adapters of models (N, P): every `lora_B` at unit length.

    The inner product of two rows is the mean, over the L adapters, of the cosine of two clients'
    `lora_B`; the cosine is 0 if one of these is zero.
    """
    ups = [each.up.name for each in adapters_of(layout)]
    units = [normalize(each.double(), dim=1) for each in columns_of(models, layout, ups)]
    joined: Tensor = torch.cat(units, 1) / len(ups) ** 0.5
    return joined


def _beside(entry: Entry, what: str) -> str:
    """The name of another tensor of the layer that has this weight."""
    return f"{entry.name.removesuffix('weight')}{what}"
