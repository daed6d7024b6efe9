"""The networks, in PyTorch alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import torch
from torch import nn

from benchmarks.peers.tasks import CLASSES


def perceptron() -> nn.Module:
    """The MLP 784-200-10."""
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 200), nn.ReLU(), nn.Linear(200, CLASSES))


def cnn() -> nn.Module:
    """The CNN of McMahan et al. 2017, with 1.66 million values."""
    first = [nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(32, 64, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)]
    dense = [nn.Linear(3136, 512), nn.ReLU(), nn.Linear(512, CLASSES)]
    return nn.Sequential(*first, *second, nn.Flatten(), *dense)


def simple_cnn() -> nn.Module:
    """The CNN with dropout of pfl-research's CIFAR-10 benchmark, with 1.6 million values."""
    first = [nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU()]
    pooled = [nn.MaxPool2d(2), nn.Dropout(0.25), nn.Flatten(), nn.Linear(12544, 128), nn.ReLU()]
    module = nn.Sequential(*first, *pooled, nn.Dropout(0.5), nn.Linear(128, CLASSES))
    for part in module:
        if isinstance(part, nn.Conv2d | nn.Linear):
            nn.init.xavier_uniform_(part.weight)
    return module


BUILD: dict[str, Callable[[], nn.Module]] = {
    "mlp": perceptron,
    "cnn": cnn,
    "cifar": simple_cnn,
    "linear": partial(nn.Linear, 20, CLASSES),
}
"""What builds a network, by its name."""


def started(network: str, seed: int) -> nn.Module:
    """A module whose weights are the same in every process."""
    torch.manual_seed(seed)
    return BUILD[network]()
