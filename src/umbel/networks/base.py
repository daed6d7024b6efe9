"""What a model is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from torch import nn

from umbel.checks import check
from umbel.settings import Settings


@dataclass(frozen=True)
class Model(Settings, ABC):
    """A recipe for a module."""

    @abstractmethod
    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        """A freshly initialised module for inputs (B, *input_shape) and outputs (B, num_outputs).

        Raises `ValueError` where the inputs have the wrong number of dimensions.
        """


def check_image(shape: Sequence[int]) -> None:
    """Raise `ValueError` unless inputs have the shape of images."""
    expected = "the shape of an image: (channels, height, width)"
    check(len(shape) == 3, "model", tuple(shape), expected)
    last = shape[2] in (1, 3, 4) and shape[0] == shape[1] > 4
    swapped = f"{expected}; channels come first: write x.transpose(0, 3, 1, 2)"
    check(not last, "model", tuple(shape), swapped)
