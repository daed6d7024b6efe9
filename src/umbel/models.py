"""Networks by name."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from torch import Tensor, nn

from umbel.checks import check


@dataclass(frozen=True)
class Model(ABC):
    """A recipe for a module."""

    @abstractmethod
    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        """A freshly initialised module for inputs (B, *input_shape) and outputs (B, num_outputs).

        Raises `ValueError` where the inputs have the wrong number of dimensions.
        """


@dataclass(frozen=True)
class Linear(Model):
    """One linear layer: logistic or linear regression."""

    init: float | None = None  # weights uniform in +-init and biases 0; None: as PyTorch does

    def __post_init__(self) -> None:
        check(self.init is None or self.init > 0, "init", self.init, "more than 0")

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        layer = nn.Linear(prod(input_shape), num_outputs)
        if self.init is not None:
            nn.init.uniform_(layer.weight, -self.init, self.init)
            nn.init.zeros_(layer.bias)
        return nn.Sequential(nn.Flatten(), layer)


@dataclass(frozen=True)
class MLP(Model):
    """Fully connected layers with ReLU between them.

    The default is the network of Kim et al. 2024, F.5; (512, 128) is that of Lin et al. 2024,
    Fig. 3, and (2048, 512) theirs for CIFAR-10.
    """

    hidden: tuple[int, ...] = (200,)

    def __post_init__(self) -> None:
        check(all(size >= 1 for size in self.hidden), "hidden", self.hidden, "sizes of 1 or more")

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        layers: list[nn.Module] = [nn.Flatten()]
        for size_in, size_out in pairwise((prod(input_shape), *self.hidden)):
            layers += [nn.Linear(size_in, size_out), nn.ReLU()]
        last = self.hidden[-1] if self.hidden else prod(input_shape)
        return nn.Sequential(*layers, nn.Linear(last, num_outputs))


@dataclass(frozen=True)
class CNN(Model):
    """Convolutions that keep the image's size, each with ReLU and 2x2 pooling, then one hidden
    layer.

    The defaults are the network of Mehta & Shao 2023, V-B, and of McMahan et al. 2017.
    """

    channels: tuple[int, ...] = (32, 64)
    kernel: int = 5
    hidden: int = 512

    def __post_init__(self) -> None:
        check(bool(self.channels), "channels", self.channels, "a list with at least one number")
        check(all(c >= 1 for c in self.channels), "channels", self.channels, "numbers of 1 or more")
        check(self.kernel % 2 == 1 and self.kernel > 0, "kernel", self.kernel, "an odd number")
        check(self.hidden >= 1, "hidden", self.hidden, "1 or more")

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        shape = tuple(input_shape)
        check(len(shape) == 3, "model", shape, "the shape of an image: (channels, height, width)")
        smallest = 2 ** len(self.channels)
        expected = f"at least {smallest} pixels high and wide, to be halved so often"
        check(min(shape[1:]) >= smallest, "model", shape, expected)
        layers: list[nn.Module] = []
        for channels_in, channels_out in pairwise((shape[0], *self.channels)):
            convolution = nn.Conv2d(channels_in, channels_out, self.kernel, padding="same")
            layers += [convolution, nn.ReLU(), nn.MaxPool2d(2)]
        features = self.channels[-1] * prod(side // smallest for side in shape[1:])
        head = [nn.Flatten(), nn.Linear(features, self.hidden), nn.ReLU()]
        return nn.Sequential(*layers, *head, nn.Linear(self.hidden, num_outputs))


@dataclass(frozen=True)
class ResNet18(Model):
    """The residual network of He et al. 2016 with 18 layers, for small images.

    As usual for these, the first convolution is 3x3 and keeps the image's size. Groups of
    channels are normalised in place of batches, whose statistics would differ between clients.
    """

    groups: int = 32  # of channels, in each normalisation

    def __post_init__(self) -> None:
        fine = self.groups >= 1 and 64 % self.groups == 0
        check(fine, "groups", self.groups, "a divisor of 64, the number of channels")

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        shape = tuple(input_shape)
        check(len(shape) == 3, "model", shape, "the shape of an image: (channels, height, width)")
        layers: list[nn.Module] = [
            nn.Conv2d(shape[0], 64, 3, padding=1, bias=False),
            nn.GroupNorm(self.groups, 64),
            nn.ReLU(),
        ]
        for channels_in, channels_out in pairwise((64, 64, 128, 256, 512)):
            stride = 1 if channels_in == channels_out else 2
            layers.append(_Residual(channels_in, channels_out, stride, self.groups))
            layers.append(_Residual(channels_out, channels_out, 1, self.groups))
        head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, num_outputs)]
        return nn.Sequential(*layers, *head)


class _Residual(nn.Module):
    """Two convolutions, added to what came in."""

    def __init__(self, channels_in: int, channels_out: int, stride: int, groups: int) -> None:
        super().__init__()
        self.path = nn.Sequential(
            nn.Conv2d(channels_in, channels_out, 3, stride, padding=1, bias=False),
            nn.GroupNorm(groups, channels_out),
            nn.ReLU(),
            nn.Conv2d(channels_out, channels_out, 3, padding=1, bias=False),
            nn.GroupNorm(groups, channels_out),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or channels_in != channels_out:
            narrow = nn.Conv2d(channels_in, channels_out, 1, stride, bias=False)
            self.shortcut = nn.Sequential(narrow, nn.GroupNorm(groups, channels_out))

    def forward(self, x: Tensor) -> Tensor:
        """(B, channels_in, H, W) -> (B, channels_out, H / stride, W / stride)."""
        added: Tensor = self.path(x) + self.shortcut(x)
        return added.relu()


MODELS: dict[str, type[Model]] = {
    "linear": Linear,
    "mlp": MLP,
    "cnn": CNN,
    "resnet18": ResNet18,
}
