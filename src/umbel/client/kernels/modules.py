"""A module in training and evaluation mode, and its tensors in theta."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.parametrize import ParametrizationList

from umbel.checks import UsageError
from umbel.client.constants import checksum, constants_of, frozen_of, scratch_of, twin
from umbel.client.layout import Layout, further_places, layout_of, tensors_of, unflatten
from umbel.client.process_locks import SWAPPING, plain_attention
from umbel.summary import in_short

SETTLING = 100
"""Largest number of passes in which a parametrisation finds its state again."""

SETTLED = 3e-3
"""State that a pass changes by no more than this share of its largest number has been found."""


class Settling(nn.Module):
    """Passes through a parametrisation until its buffers have found what belongs to its weights."""

    def __init__(self, part: nn.Module, share: float) -> None:
        super().__init__()
        self.part, self.share = part, share

    def forward(self) -> None:
        buffers = [buffer for buffer in self.part.buffers() if buffer.is_floating_point()]
        for _ in range(SETTLING):
            before = [buffer.clone() for buffer in buffers]
            self.part()
            if all(
                (buffer - old).abs().max() <= self.share * old.abs().max()
                for buffer, old in zip(buffers, before, strict=True)
            ):
                return


def in_mode(module: nn.Module, training: bool) -> nn.Module:
    """The module, after a switch to training or evaluation mode.

    A module may have its own `train` that returns nothing.
    """
    module.train(training)
    return module


def _checksums(module: nn.Module, layout: Layout) -> dict[str, int]:
    """Checksums of the constants that a switch to evaluation might write in, by their names."""
    if all(getattr(part.train, "__func__", None) is nn.Module.train for part in module.modules()):
        return {}  # which only sets flags
    # Checksums and not copies: there may be no memory for the frozen values twice.
    return {name: checksum(tensor) for name, tensor in constants_of(module, layout).items()}


@dataclass(frozen=True)
class Modules:
    """Copies of one module, with its constants; its other tensors come from theta."""

    training: nn.Module
    evaluating: nn.Module
    layout: Layout
    dtype: torch.dtype  # type of theta
    scratch: Mapping[str, Tensor]  # buffers that a pass may change, of the training module
    places: Mapping[str, str]  # further name of a tensor in theta or in `scratch` -> its name

    __repr__ = in_short

    @classmethod
    def of(cls, module: nn.Module, moving: Sequence[str]) -> Modules:
        """Raises `UsageError` as `layout_of` does, and if evaluation writes in the constants."""
        layout, dtype = layout_of(module, moving)
        before = _checksums(in_mode(module, training=True), layout)
        modules = cls.around(module, layout, dtype)
        now = _checksums(module, layout)
        for name in before:
            if now[name] != before[name]:
                raise UsageError(
                    f"Net: a switch to evaluation writes in {name}, which training reads, too: let "
                    "train() and eval() change no values, and forward compute what evaluation "
                    "needs (in loralib, merge_weights=False)"
                )
        return modules

    @classmethod
    def around(cls, training: nn.Module, layout: Layout, dtype: torch.dtype) -> Modules:
        """This module in training mode, and its twin in evaluation mode."""
        evaluating = in_mode(twin(training, layout), training=False)
        scratch = scratch_of(training, layout)
        given = {*scratch, *(entry.name for entry in layout.weights + layout.rest)}
        places = {n: own for n, own in further_places(training).items() if own in given}
        return cls(training, evaluating, layout, dtype, scratch, places)

    def to(self, device: torch.device) -> Modules:
        """The same on a device, in new modules; constants that are already there are shared."""
        training = twin(self.training, self.layout).to(device)
        return Modules.around(training, self.layout, self.dtype)

    @property
    def frozen(self) -> dict[str, Tensor]:
        """The frozen tensors by name, which all models share."""
        return frozen_of(self.training, self.layout)

    @cached_property
    def recurrent(self) -> bool:
        """Whether the module contains recurrent layers."""
        return any(isinstance(part, nn.RNNBase) for part in self.training.modules())

    @cached_property
    def derived(self) -> dict[str, Settling]:
        """Parametrisations with state in theta, by their places, such as spectral normalisation.

        They see no inputs, so that this state follows from the weights.
        """
        moved = {entry.name.rpartition(".")[0] for entry in self.layout.rest}
        share = max(SETTLED, 4 * torch.finfo(self.dtype).eps)
        return {
            name: Settling(part, share)
            for name, part in self.training.named_modules()
            if isinstance(part, ParametrizationList)
            and any(place.startswith(f"{name}.") for place in moved)
        }

    def settled(self, theta: Tensor) -> Tensor:
        """theta (P,) in which state that follows from the weights is found for these weights.

        A mean of the states of several models is not the state of their mean.
        """
        if not self.derived:
            return theta
        cut = self.layout.num_weights
        rest = theta[cut:].clone()
        tensors = unflatten(theta[:cut], self.layout.weights) | unflatten(rest, self.layout.rest)
        tensors |= {place: tensors[n] for place, n in self.places.items() if n in tensors}
        with torch.no_grad(), SWAPPING.lock:
            for name, settling in self.derived.items():
                given = {n: f"{name}.{n.removeprefix('part.')}" for n in tensors_of(settling)}
                own = {n: tensors[place] for n, place in given.items() if place in tensors}
                functional_call(settling, own, ())
        return torch.cat([theta[:cut], rest])

    def adopt(self, frozen: Mapping[str, Tensor]) -> None:
        """From now on, read the frozen values from other memory, which holds the same bytes."""
        for module in (self.training, self.evaluating):
            own = tensors_of(module)
            for name, values in frozen.items():
                own[name].data = values.view(own[name].dtype).view(own[name].shape)

    def values_per_example(self, x: Tensor) -> int:
        """The number of values of an example of a batch and of all layers' outputs for it."""
        counts = [x.numel()]

        def count(_module: nn.Module, _inputs: object, output: object) -> None:
            counts[0] += output.numel() if isinstance(output, Tensor) else 0

        leaves = [part for part in self.evaluating.modules() if not list(part.children())]
        hooks = [leaf.register_forward_hook(count) for leaf in leaves]
        with torch.no_grad():
            self.evaluating(x)
        for hook in hooks:
            hook.remove()
        return counts[0] // len(x)

    def saved_per_example(self, x: Tensor) -> int:
        """The number of values per example that a forward pass keeps for the backward pass.

        They include values inside a layer, such as attention weights.
        """
        own = {tensor.data_ptr() for tensor in tensors_of(self.evaluating).values()}
        seen = dict[int, int]()

        def note(tensor: Tensor) -> Tensor:
            if tensor.data_ptr() not in own:
                seen[tensor.data_ptr()] = max(tensor.numel(), seen.get(tensor.data_ptr(), 0))
            return tensor

        hooks = torch.autograd.graph.saved_tensors_hooks(note, lambda kept: kept)
        with torch.enable_grad(), plain_attention(), hooks:
            self.evaluating(x)
        return sum(seen.values()) // len(x)
