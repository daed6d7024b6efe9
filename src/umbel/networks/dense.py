"""Fully connected networks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from torch import nn

from umbel.checks import check, check_least
from umbel.networks.base import Model
from umbel.networks.lora import LoRA

LARGEST_BOUND = 1e30
"""Largest bound of initial weights; single precision ends at 3e38."""


@dataclass(frozen=True)
class Linear(Model):
    """One linear layer: logistic or linear regression."""

    #: initial weights are uniform in +-init, biases 0; None: PyTorch's default
    init: float | None = None

    def __post_init__(self) -> None:
        fine = self.init is None or 0 < self.init <= LARGEST_BOUND
        check(fine, "init", self.init, f"more than 0, and {LARGEST_BOUND:g} at most")

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        layer = nn.Linear(prod(input_shape), num_outputs)
        if self.init is not None:
            nn.init.uniform_(layer.weight, -self.init, self.init)
            nn.init.zeros_(layer.bias)
        return nn.Sequential(nn.Flatten(), layer)


@dataclass(frozen=True)
class MLP(Model):
    """Fully connected layers with ReLU between them.

    The default is the network of Kim et al. 2024, F.5. The networks of Lin et al. 2024, Fig. 3,
    have hidden layers (512, 128), and (2048, 512) for CIFAR-10.
    """

    hidden: tuple[int, ...] = (200,)  #: units of each hidden layer
    #: rank of adapters of frozen hidden layers; None: all layers are trained
    adapters: int | None = None

    def __post_init__(self) -> None:
        check(all(size >= 1 for size in self.hidden), "hidden", self.hidden, "sizes of 1 or more")
        check_least(self, 1, "adapters")
        inside = self.adapters is None or bool(self.hidden)
        check(inside, "adapters", self.adapters, "None: there are no hidden layers")

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        for size_in, size_out in pairwise((prod(input_shape), *self.hidden)):
            layer = nn.Linear(size_in, size_out)
            layers += [layer if self.adapters is None else LoRA(layer, self.adapters), nn.ReLU()]
        last = self.hidden[-1] if self.hidden else prod(input_shape)
        return nn.Sequential(*layers, nn.Linear(last, num_outputs))
