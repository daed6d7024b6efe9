"""Low-rank adapters that are mixtures of experts, as modules.

A mixture sum_m w_m B_m A_m x is an adapter of rank M r, whose intermediate A x is scaled block by
block. So it is enough to replace both layers of an adapter; code that calls them is unchanged.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import linear

from umbel.checks import check
from umbel.client.constants import twin
from umbel.client.kernels.modules import Modules
from umbel.client.layout import Entry
from umbel.client.routing import Routing


class Down(nn.Module):
    """The `lora_A` of all experts, with outputs scaled by their weights: (..., in) -> (..., M r).

    The client's own expert is first. A router gives 2M - 1 logits; the first M slots all stand for
    the own expert, the others for the other experts. The softmax of the M largest logits gives the
    weights, so the own expert is always among them.
    """

    def __init__(self, own: nn.Linear, num_experts: int) -> None:
        super().__init__()
        self.num_experts = num_experts
        self.weight = own.weight
        values = own.weight.detach()
        self.router = nn.Parameter(values.new_zeros(2 * num_experts - 1, own.in_features))
        self.others: Tensor
        self.register_buffer("others", values.new_zeros(num_experts - 1, *values.shape))

    def forward(self, x: Tensor) -> Tensor:
        """Return the scaled outputs of all experts."""
        rank = self.weight.shape[0]
        inside = linear(x, torch.cat([self.weight[None], self.others]).flatten(0, 1))
        shares = slot_shares(linear(x, self.router), self.num_experts)
        apart = inside.reshape(*inside.shape[:-1], self.num_experts, rank)
        scaled: Tensor = apart * shares[..., None]
        return scaled.flatten(-2)


class Up(nn.Module):
    """The sum of all experts' `lora_B`: (..., M r) -> (..., out)."""

    def __init__(self, own: nn.Linear, num_experts: int) -> None:
        super().__init__()
        self.weight = own.weight
        values = own.weight.detach()
        self.others: Tensor
        self.register_buffer("others", values.new_zeros(num_experts - 1, *values.shape))

    def forward(self, inside: Tensor) -> Tensor:
        """Return the sum of the experts' outputs."""
        every = torch.cat([self.weight[None], self.others])  # (M, out, r)
        return linear(inside, every.transpose(0, 1).flatten(1))


def slot_shares(logits: Tensor, num_experts: int) -> Tensor:
    """Weights (..., M) of the experts, the own one first, from router logits (..., 2M - 1)."""
    # Slots that tie with the last of the M count, too: otherwise the choice would be arbitrary.
    last = logits.topk(num_experts).values[..., -1:]
    slots = logits.masked_fill(logits < last, -torch.inf).softmax(-1)
    own = slots[..., :num_experts].sum(-1, keepdim=True)
    return torch.cat([own, slots[..., num_experts:]], -1)


def routed_module(module: nn.Module, routing: Routing) -> nn.Module:
    """Replace the adapters of a module by mixtures, in place.

    Raises `UsageError` unless all layers of adapters are `nn.Linear` without bias.
    """
    for each in routing.adapters:
        _replace(module, each.down, Down, routing.num_experts)
        _replace(module, each.up, Up, routing.num_experts)
    return module


def routed_modules(modules: Modules, num_experts: int) -> Modules:
    """The same modules with mixtures as adapters, in the layout of `Routing`."""
    routing = Routing(modules.layout, num_experts)
    training = routed_module(twin(modules.training, modules.layout), routing)
    return Modules.around(training, routing.layout, modules.dtype)


def _replace(module: nn.Module, weight: Entry, kind: type[Down | Up], num_experts: int) -> None:
    """Replace the layers with this weight, which several places may share, by one."""
    paths = [name.rpartition(".")[0] for name in (weight.name, *weight.also)]
    layers = [module.get_submodule(path) for path in paths]
    for path, layer in zip(paths, layers, strict=True):
        plain = isinstance(layer, nn.Linear) and layer.bias is None
        expected = "an nn.Linear without bias, as in umbel.networks.LoRA"
        check(plain, path, type(layer).__name__, expected)
    assert isinstance(layers[0], nn.Linear)
    mixture = kind(layers[0], num_experts)
    for path in paths:
        parent, _, last = path.rpartition(".")
        setattr(module.get_submodule(parent), last, mixture)
