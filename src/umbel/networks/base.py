"""The base class of networks' settings, and checks of input shapes."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import nn

from umbel.checks import UsageError, check, check_memory, check_returned
from umbel.client.layout import freeze
from umbel.settings import Settings


@dataclass(frozen=True)
class Model(Settings, ABC):
    """Settings of a network, from which `build` makes a torch module."""

    path_settings: ClassVar[frozenset[str]] = frozenset({"encoder"})

    #: patterns of parameters that are not trained, such as "trunk.*"; None: all are trained
    freeze: tuple[str, ...] | None = field(default=None, kw_only=True)

    @property
    def moving(self) -> Sequence[str]:
        """Patterns of buffers that training changes, as in `Net`; subclasses may replace it."""
        return ()

    @abstractmethod
    def build(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        """A freshly initialised module for inputs (B, *input_shape) and outputs (B, num_outputs).

        Raises `UsageError` if inputs of this shape do not suit the network.
        """

    def made(self, input_shape: Sequence[int], num_outputs: int) -> nn.Module:
        """Build the module, and freeze the parameters that match the patterns in `freeze`.

        Raises `UsageError` for a pattern that matches no parameter, if no parameter is left to
        train, or if `build` returns no module.
        """
        module = self.build(input_shape, num_outputs)
        check_returned(self, module, nn.Module, "an nn.Module")
        if self.freeze:
            freeze(module, self.freeze)
            left = any(parameter.requires_grad for parameter in module.parameters())
            check(left, "freeze", list(self.freeze), "patterns that leave a parameter to train")
        return module


COPIES = 4
"""Copies of a model's size while it trains: itself, its gradient, the step, the received model."""


@contextmanager
def without_values() -> Iterator[None]:
    """Build tensors with shapes but no values; values in files are not read either."""
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.filterwarnings("ignore", ".*copying from a non-meta parameter")
        yield


def check_size(model: Model, input_shape: Sequence[int], num_outputs: int) -> None:
    """Raise `UsageError` before a module is built that does not fit into memory."""
    said = f"for inputs of shape {tuple(input_shape)} and {num_outputs:,} outputs"
    try:
        with without_values():
            module = model.made(input_shape, num_outputs)
        tensors = [*module.parameters(), *module.buffers()]
    except UsageError:
        raise
    # a user's module may need values; it is then built without this check
    except Exception as error:
        if "overflow" in str(error).lower():
            raise UsageError(f"model: {said}: it has too many values to be counted") from None
        return
    values = sum(tensor.numel() for tensor in tensors)
    trained = [tensor for tensor in tensors if tensor.requires_grad]
    needed = sum(t.nbytes for t in tensors) + (COPIES - 1) * sum(t.nbytes for t in trained)
    check_memory(needed, f"model: {said}: to train its {values:,} values")


def check_image(shape: Sequence[int]) -> None:
    """Raise `UsageError` unless inputs have the shape of images."""
    expected = "the shape of an image: (channels, height, width)"
    check(len(shape) == 3, "model", tuple(shape), expected)
    last = shape[2] in (1, 3, 4) and shape[0] == shape[1] > 4
    swapped = f"{expected}; channels come first: write x.transpose(0, 3, 1, 2)"
    check(not last, "model", tuple(shape), swapped)


def check_symbols(shape: Sequence[int]) -> int:
    """The length of sequences of symbols. Raises `UsageError` for inputs of another shape."""
    expected = "the shape of a sequence: (length,)"
    hint = "; symbols are whole numbers, and not one-hot" if len(shape) == 2 else ""
    check(len(shape) == 1, "model", tuple(shape), expected + hint)
    return shape[0]
