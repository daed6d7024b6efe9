"""Networks of a few convolutions, then fully connected layers.

ReLU comes after pooling, while the papers have it before. Outputs and gradients are the same,
because the maximum of rectified values is the rectified maximum, and ReLU costs a quarter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from torch import nn

from umbel.checks import check, check_least
from umbel.networks.base import Model, check_image


@dataclass(frozen=True)
class CNN(Model):
    """Convolutions of an image, each with 2x2 pooling and ReLU, then one hidden layer.

    The convolutions keep the image's size.

    The defaults are the network of Mehta & Shao 2023, V-B, and of McMahan et al. 2017. The authors
    of LCFL (Gu et al. 2024) have channels (16, 32) and 256 hidden units.
    """

    channels: tuple[int, ...] = (32, 64)  #: number of channels of each convolution
    kernel: int = 5  #: width of the convolutions
    hidden: int = 512  #: number of units of the hidden layer

    def __post_init__(self) -> None:
        check(bool(self.channels), "channels", self.channels, "a list with at least one number")
        check(all(c >= 1 for c in self.channels), "channels", self.channels, "numbers of 1 or more")
        check(self.kernel % 2 == 1 and self.kernel > 0, "kernel", self.kernel, "an odd number")
        check_least(self, 1, "hidden")

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        shape = tuple(input_shape)
        check_image(shape)
        smallest = 2 ** len(self.channels)
        expected = f"at least {smallest} pixels high and wide, halved by each layer"
        check(min(shape[1:]) >= smallest, "model", shape, expected)
        layers: list[nn.Module] = []
        for channels_in, channels_out in pairwise((shape[0], *self.channels)):
            convolution = nn.Conv2d(channels_in, channels_out, self.kernel, padding="same")
            layers += [convolution, nn.MaxPool2d(2), nn.ReLU()]
        features = self.channels[-1] * prod(side // smallest for side in shape[1:])
        return nn.Sequential(*layers, *_head(features, (self.hidden,), num_outputs))


@dataclass(frozen=True)
class LeNet(Model):
    """Two convolutions without padding, each with 2x2 pooling and ReLU, then two hidden layers.

    The network of Lin et al. 2024, Fig. 3, for CIFAR-10, and of Sattler et al. 2020 for EMNIST,
    which Kim et al. 2024, F.8, take over.
    """

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        channels, *sides = _image(input_shape, smallest=16)
        layers: list[nn.Module] = []
        for channels_in, channels_out in pairwise((channels, 6, 16)):
            layers += [nn.Conv2d(channels_in, channels_out, 5), nn.MaxPool2d(2), nn.ReLU()]
        features = 16 * prod(((side - 4) // 2 - 4) // 2 for side in sides)
        return nn.Sequential(*layers, *_head(features, (120, 84), num_outputs))


@dataclass(frozen=True)
class CNNLin(Model):
    """Two convolutions without padding, then one 2x2 pooling and a hidden layer, with ReLU.

    The network of Lin et al. 2024, Fig. 3, for MNIST and Fashion-MNIST, and with `kernel = 5` for
    EMNIST.
    """

    kernel: int = 3  #: width of the first convolution; the second has width 3

    def __post_init__(self) -> None:
        check_least(self, 1, "kernel")

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        channels, *sides = _image(input_shape, smallest=self.kernel + 3)
        first = [nn.Conv2d(channels, 32, self.kernel), nn.ReLU()]
        second = [nn.Conv2d(32, 64, 3), nn.MaxPool2d(2), nn.ReLU()]
        features = 64 * prod((side - self.kernel - 1) // 2 for side in sides)
        return nn.Sequential(*first, *second, *_head(features, (128,), num_outputs))


@dataclass(frozen=True)
class CNN1D(Model):
    """Three convolutions along a signal, each with pooling and ReLU, then two hidden layers.

    The network of Mehta & Shao 2023, VI: 64, 128 and 256 filters of size 5, and 128 and 64 units.
    The paper does not mention padding; here convolutions keep the signal's length, as in `cnn`.
    """

    channels: tuple[int, ...] = (64, 128, 256)  #: number of channels of each convolution

    def __post_init__(self) -> None:
        fine = len(self.channels) == 3 and all(c >= 1 for c in self.channels)
        check(fine, "channels", self.channels, "three numbers of 1 or more")

    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        shape = tuple(input_shape)
        check(len(shape) == 2, "model", shape, "the shape of a signal: (channels, length)")
        check(shape[1] >= 8, "model", shape, "at least 8 long, to be halved three times")
        layers: list[nn.Module] = []
        for channels_in, channels_out in pairwise((shape[0], *self.channels)):
            convolution = nn.Conv1d(channels_in, channels_out, 5, padding="same")
            layers += [convolution, nn.MaxPool1d(2), nn.ReLU()]
        return nn.Sequential(
            *layers, *_head(self.channels[-1] * (shape[1] // 8), (128, 64), num_outputs)
        )


def _image(shape: Sequence[int], smallest: int) -> Sequence[int]:
    """Channels, height and width of images that are large enough."""
    check_image(shape)
    fine = min(shape[1:]) >= smallest
    check(fine, "model", tuple(shape), f"at least {smallest} pixels high and wide")
    return shape


def _head(features: int, hidden: Sequence[int], num_outputs: int) -> list[nn.Module]:
    """Fully connected layers, with ReLU after the hidden ones."""
    layers: list[nn.Module] = [nn.Flatten()]
    for size_in, size_out in pairwise((features, *hidden)):
        layers += [nn.Linear(size_in, size_out), nn.ReLU()]
    return [*layers, nn.Linear(hidden[-1], num_outputs)]
