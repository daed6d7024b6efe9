"""Networks of many kinds, small enough to be tried all."""

from __future__ import annotations

import random
import warnings
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize, prune

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


class Viewing(nn.Module):
    """A small CNN that takes what it makes of an image for a row by `view`."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.head = nn.Conv2d(3, 4, 3, padding=1), nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        inner = nn.functional.max_pool2d(self.layer(x).relu(), 2)
        out: Tensor = self.head(inner.view(len(x), -1))
        return out


class Strided(Viewing):
    """The same, by the places of its values in memory."""

    def forward(self, x: Tensor) -> Tensor:
        inner = nn.functional.max_pool2d(self.layer(x).relu(), 2)
        out: Tensor = self.head(inner.as_strided((len(x), 64), (64, 1)))
        return out


class StridedInEvaluation(Viewing):
    """The same, but in training."""

    def forward(self, x: Tensor) -> Tensor:
        inner = nn.functional.max_pool2d(self.layer(x).relu(), 2)
        rows = inner.flatten(1) if self.training else inner.as_strided((len(x), 64), (64, 1))
        out: Tensor = self.head(rows)
        return out


class CNNOfTwo(nn.Module):
    """Two convolutions, and what is between them to be looked at."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(channels, 4, 3, padding=1), nn.Conv2d(4, 4, 3)
        self.head = nn.Linear(4, 3)

    def noted(self, inner: Tensor) -> Tensor:
        return inner

    def forward(self, x: Tensor) -> Tensor:
        inner = self.noted(nn.functional.max_pool2d(self.first(x).relu(), 2))
        out: Tensor = self.head(nn.functional.max_pool2d(self.second(inner).relu(), 2).flatten(1))
        return out


def pruned() -> nn.Module:
    """A chain of layers whose weights stand behind their bias, since they were put back."""
    first, last = nn.Linear(6, 8), nn.Linear(8, 3)
    prune.l1_unstructured(first, "weight", 0.1)  # type: ignore[no-untyped-call]
    prune.remove(first, "weight")  # type: ignore[no-untyped-call]
    parametrize.register_parametrization(last, "weight", nn.Identity())
    parametrize.remove_parametrizations(last, "weight")
    return nn.Sequential(first, nn.ReLU(), last)


class Renamed(nn.Sequential):
    """Saves its values under names of its own."""

    def state_dict(self, *args: Any, **options: Any) -> Any:
        return {f"saved.{n}": t for n, t in super().state_dict(*args, **options).items()}

    def load_state_dict(self, state_dict: Any, *args: Any, **options: Any) -> Any:
        own = {name.removeprefix("saved."): tensor for name, tensor in state_dict.items()}
        return super().load_state_dict(own, *args, **options)


class Silent(nn.Sequential):
    """Has a `train` that changes the mode, and returns nothing."""

    def train(self, mode: bool = True) -> Any:
        super().train(mode)


def without_units() -> nn.Module:
    """A chain whose layer in the middle is empty, so that the last bias alone decides."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Initializing zero-element tensors")
        return chain(6, 0, 3)()


def instance_normed(behind: Callable[[], nn.Module]) -> Build:
    """Convolutions of 8 x 8 images with a norm of each image, and something behind it."""
    return lambda: nn.Sequential(
        nn.Conv2d(2, 4, 3),
        nn.InstanceNorm2d(4),
        behind(),
        nn.Conv2d(4, 2, 3),
        nn.Flatten(),
        nn.Linear(32, 3),
    )
