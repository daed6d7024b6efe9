"""What the values of theta are, in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain

import torch
from torch import Tensor, nn

from umbel.checks import UsageError, check


@dataclass(frozen=True)
class Entry:
    """One tensor of the module."""

    name: str
    shape: torch.Size


@dataclass(frozen=True)
class Layout:
    """What the values of theta are, in order: trained parameters, then the rest."""

    weights: tuple[Entry, ...]
    rest: tuple[Entry, ...]

    @cached_property
    def num_weights(self) -> int:
        """How many leading values of theta are trained."""
        return sum(entry.shape.numel() for entry in self.weights)

    @cached_property
    def num_values(self) -> int:
        """P."""
        return self.num_weights + sum(entry.shape.numel() for entry in self.rest)

    def tensors(self, theta: Tensor) -> dict[str, Tensor]:
        """Views of theta (P,) by name, in the module's shapes."""
        return unflatten(theta, self.weights + self.rest)

    def mask(self, patterns: Sequence[str]) -> Tensor:
        """(P,) bool: the values of tensors whose name matches a pattern such as `"trunk.*"`.

        Raises `ValueError` for a pattern that matches no name.
        """
        entries = self.weights + self.rest
        names = [entry.name for entry in entries]
        for pattern in patterns:
            hit = any(fnmatchcase(name, pattern) for name in names)
            check(hit, "shared", pattern, f"a pattern for any of {', '.join(names)}")
        hits = [any(fnmatchcase(name, pattern) for pattern in patterns) for name in names]
        sizes = torch.tensor([entry.shape.numel() for entry in entries])
        return torch.tensor(hits, dtype=torch.bool).repeat_interleave(sizes)


def unflatten(vector: Tensor, entries: Sequence[Entry]) -> dict[str, Tensor]:
    """Views of consecutive parts of a vector, by name."""
    parts = torch.split(vector, [entry.shape.numel() for entry in entries])
    return {e.name: part.view(e.shape) for e, part in zip(entries, parts, strict=True)}


def layout_of(module: nn.Module) -> tuple[Layout, torch.dtype]:
    """The layout of a module's theta, and its type. Raises `UsageError` where it has none."""
    tensors = {name: t for name, t in tensors_of(module).items() if t.is_floating_point()}
    weights = [name for name, tensor in tensors.items() if tensor.requires_grad]
    if not weights:
        raise UsageError(f"Net: {type(module).__name__} has no parameter to train")
    dtypes = {tensor.dtype for tensor in tensors.values()}
    if len(dtypes) > 1:
        raise UsageError(
            f"Net: the module mixes {', '.join(sorted(map(str, dtypes)))}; "
            "cast it to one floating-point type, for example with module.float()"
        )
    rest = [name for name in tensors if name not in weights]
    entries = {name: Entry(name, tensor.shape) for name, tensor in tensors.items()}
    layout = Layout(tuple(map(entries.__getitem__, weights)), tuple(map(entries.__getitem__, rest)))
    return layout, dtypes.pop()


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Its parameters and buffers by name."""
    return dict(chain(module.named_parameters(), module.named_buffers()))
