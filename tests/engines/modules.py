"""Networks of many kinds, small enough to be tried all."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch
from torch import Tensor, nn

Build: TypeAlias = Callable[[], nn.Module]


def chain(*sizes: int) -> Build:
    """Linear layers with ReLU between them, after a Flatten."""

    def build() -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        for size_in, size_out in pairwise(sizes):
            layers += [nn.Linear(size_in, size_out), nn.ReLU()]
        return nn.Sequential(*layers[:-1])

    return build


def spread(module: nn.Module, devices: Sequence[int]) -> nn.Module:
    """The module in DataParallel, as on a machine with these GPUs."""
    wrapped = nn.DataParallel(module)
    wrapped.device_ids = list(devices)
    return wrapped.cpu()


def normed(norm: Callable[[], nn.Module]) -> Build:
    """An MLP with a layer of normalisation, or of something else, in the middle."""
    return lambda: nn.Sequential(nn.Linear(6, 8), norm(), nn.ReLU(), nn.Linear(8, 3))


def convolutions(channels: int, norm: Callable[[], nn.Module] = nn.Identity) -> Build:
    """Two convolutions of 8 x 8 images of so many channels."""
    return lambda: nn.Sequential(
        nn.Conv2d(channels, 4, 3, padding=1),
        norm(),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 4, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16, 3),
    )


class Pixels(nn.Module):
    """Logits (B, 3, 4, 4) for the class of every pixel."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Conv2d(2, 3, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.layer(x)
        return out


class Recurrent(nn.Module):
    """A recurrent layer over sequences (B, T, 2), read at its end."""

    def __init__(self, kind: Callable[..., nn.Module], num_outputs: int = 3) -> None:
        super().__init__()
        self.recurrent = kind(2, 5, batch_first=True)
        self.head = nn.Linear(5, num_outputs)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.recurrent(x)
        out: Tensor = self.head(states[:, -1])
        return out


class Tagger(nn.Module):
    """An LSTM over tokens (B, T): logits (B, C, T) for the label of each."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4, padding_idx=0)
        self.recurrent = nn.LSTM(4, 5, batch_first=True)
        self.head = nn.Linear(5, 3)

    def forward(self, x: Tensor) -> Tensor:
        states, _ = self.recurrent(self.embedding(x))
        out: Tensor = self.head(states).movedim(-1, 1)
        return out


class Transformer(nn.Module):
    """One block of causal attention over tokens (B, T): logits (B, C, T) for the next."""

    def __init__(self, length: int = 6) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 8)
        self.register_buffer("positions", torch.randn(length, 8))
        self.register_buffer("mask", torch.full((length, length), -torch.inf).triu(1))
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm = nn.LayerNorm(8)
        self.head = nn.Linear(8, 7)

    def forward(self, x: Tensor) -> Tensor:
        inputs = self.embedding(x) + self.positions
        found, _ = self.attention(inputs, inputs, inputs, attn_mask=self.mask, need_weights=False)
        out: Tensor = self.head(self.norm(inputs + found)).movedim(-1, 1)
        return out


class Tied(nn.Module):
    """The weights that read tokens also name them: logits (B, C, T)."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 5)
        self.head = nn.Linear(5, 7)
        self.head.weight = self.embedding.weight

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.embedding(x).tanh()).movedim(-1, 1)
        return out


class Frozen(nn.Module):
    """A backbone that is not trained, with constants, and a head that is."""

    def __init__(self) -> None:
        super().__init__()
        self.mean: Tensor
        self.register_buffer("mean", torch.randn(6))
        self.register_buffer("cache", torch.ones(8), persistent=False)
        self.backbone = nn.Linear(6, 8).requires_grad_(False)
        self.head = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.head(self.backbone(x - self.mean).relu() * self.cache)
        return out


class OwnStatistics(nn.Module):
    """A running mean of its own, which training moves, or every pass."""

    def __init__(self, always: bool = False) -> None:
        super().__init__()
        self.always = always
        self.running: Tensor
        self.register_buffer("running", torch.zeros(6))
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        if self.training or self.always:
            self.running.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
        out: Tensor = self.layer(x - self.running)
        return out


class Drawing(nn.Module):
    """Draws from every global generator."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        factor = random.random() + np.random.rand()  # noqa: NPY002
        out: Tensor = self.layer(x * factor + torch.rand(()))
        return out


class Bounded(nn.Module):
    """Divides by the largest value of all: examples that stand in for padding don't show."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 8), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.first(x).tanh()
        out: Tensor = self.last(inner / inner.detach().abs().amax())
        return out


class LayerDrop(nn.Module):
    """Leaves out a layer's activation now and then, as Python's generator has it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(6, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        inner = self.first(x)
        if not (self.training and random.random() < 0.1):
            inner = inner.tanh()
        out: Tensor = self.last(inner)
        return out
