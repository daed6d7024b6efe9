"""The kernel of any module: `torch.func` computes gradients, and every step makes a new model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.backends import cudnn
from torch.func import functional_call, vjp

from umbel.checks import UsageError, check
from umbel.client.batches import Batch, Shard
from umbel.client.descent import Rule
from umbel.client.kernels.modules import Modules
from umbel.client.layout import Entry, unflatten
from umbel.client.objectives import Objective
from umbel.client.process_locks import SWAPPING, HeldSetting


def _enable(cudnn_too: bool) -> None:
    cudnn.enabled = cudnn_too


WITHOUT_CUDNN = HeldSetting(lambda: bool(cudnn.enabled), _enable, False)


@dataclass(frozen=True)
class General:
    """Computes one model at a time, or many through `vmap`."""

    modules: Modules
    objective: Objective
    cast_to: torch.dtype | None = None  # type of the computation in passes; None: that of theta

    def outputs(self, theta: Tensor, x: Tensor) -> Tensor:
        layout, cut = self.modules.layout, self.modules.layout.num_weights
        # Some modules change buffers in every pass, and theta belongs to the caller.
        rest = _apart(theta[cut:].clone(), layout.rest)
        tensors = {**_apart(theta[:cut], layout.weights), **rest, **self._scratch()}
        return self._passed_on(self.modules.evaluating, tensors, x)

    def gradient(
        self, theta: Tensor, batch: Batch, factors: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        cut = self.modules.layout.num_weights
        return with_gradient(
            lambda weights: self.loss(weights, theta[cut:], batch, factors), theta[:cut]
        )

    def descend(
        self, theta: Tensor, shard: Shard, rule: Rule, factors: Tensor | None = None
    ) -> Tensor:
        return rule.by_gradients(self.gradient, theta, shard, factors)

    def features(self, theta: Tensor, x: Tensor, layer: str) -> Tensor:
        """What a layer gives for inputs (B, ...) in evaluation mode; "": what the last is given."""
        with _watched(self.modules.evaluating, layer or self._before_last) as seen:
            self.outputs(theta, x)
        return seen[-1].flatten(1)

    def gradient_with(
        self, theta: Tensor, batch: Batch, layer: str, term: Callable[[Tensor], Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Do as `gradient`, with a term (B,) of the layer's features (B, F) added to the losses."""
        cut = self.modules.layout.num_weights

        def loss(weights: Tensor) -> tuple[Tensor, Tensor]:
            with _watched(self.modules.training, layer or self._before_last) as seen:
                plain, rest = self.loss(weights, theta[cut:], batch)
            return plain + batch.mean(term(seen[-1].flatten(1))), rest

        return with_gradient(loss, theta[:cut])

    @property
    def _before_last(self) -> str:
        """The layer whose weights are the last in theta, for its inputs."""
        return "<" + self.modules.layout.weights[-1].name.rpartition(".")[0]

    def loss(
        self, weights: Tensor, rest: Tensor, batch: Batch, factors: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mean loss () in training mode, and the rest of theta after the pass."""
        rest = rest.clone()  # the module updates its buffers in place
        moving = _apart(rest, self.modules.layout.rest)
        tensors = {
            **_apart(weights, self.modules.layout.weights),
            **moving,
            **self._scratch(),
        }
        outputs = self._passed_on(self.modules.training, tensors, batch.x)
        losses = self.objective.losses(outputs, batch.y)
        if rest.is_cuda and moving:
            rest = torch.cat([tensor.flatten() for tensor in moving.values()])
        return batch.mean(losses if factors is None else losses * factors), rest

    def _holding(
        self, module: nn.Module, tensors: Mapping[str, Tensor]
    ) -> Callable[[Tensor], object]:
        """The module with these tensors; after the block it has its own again."""
        shared = {place: tensors[name] for place, name in self.modules.places.items()}
        # For a layer that is used twice, torch would set a tensor twice, and then restore the
        # tensor of the first call instead of the layer's own.
        return partial(functional_call, module, {**tensors, **shared}, tie_weights=False)

    def _scratch(self) -> dict[str, Tensor]:
        """Buffers that a pass may change, with their values at construction."""
        return {name: buffer.clone() for name, buffer in self.modules.scratch.items()}

    def passed(self, module: Callable[[Tensor], object], x: Tensor) -> Tensor:
        """Outputs of this module, cast back to the type of theta."""
        if self.cast_to is None:
            return one_tensor(module(x))
        with torch.autocast(x.device.type, self.cast_to):
            outputs = one_tensor(module(x))
        return outputs.to(self.modules.dtype)

    def _passed_on(self, module: nn.Module, tensors: Mapping[str, Tensor], x: Tensor) -> Tensor:
        """Outputs of the module with these tensors."""
        # cuDNN's recurrent layers need weights in memory of their own, which torch.func hides.
        without = x.is_cuda and self.modules.recurrent
        with SWAPPING.lock, WITHOUT_CUDNN.held() if without else nullcontext():
            return self.passed(self._holding(module, tensors), x)


@contextmanager
def _watched(module: nn.Module, layer: str) -> Iterator[list[Tensor]]:
    """The outputs of a layer in passes within the block; those of "<layer" are its inputs."""
    seen = list[Tensor]()
    named = dict(module.named_modules())
    name, inputs = layer.removeprefix("<"), layer.startswith("<")
    known = ", ".join(each for each in named if each)
    check(name in named, "layer", name, f"the name of a layer: {known}")

    def see(_: nn.Module, given: tuple[Any, ...], result: object) -> None:
        seen.append(one_tensor(given[0] if inputs else result))

    handle = named[name].register_forward_hook(see)
    try:
        yield seen
    finally:
        handle.remove()


def _apart(values: Tensor, entries: Sequence[Entry]) -> dict[str, Tensor]:
    """The tensors of flat values; on a GPU, each in memory of its own.

    A GPU reads many bytes at once, and tensors inside a flat vector may not be aligned.
    """
    tensors = unflatten(values, entries)
    return {n: t.clone() for n, t in tensors.items()} if values.is_cuda else tensors


def with_gradient(
    function: Callable[[Tensor], tuple[Tensor, Tensor]], point: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradient of a function's first result, and both results.

    They equal those of `torch.func.grad_and_value`, which takes seconds to load PyTorch's compiler.
    """

    def differentiated(inside: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        value, other = function(inside)
        values = [value] if value.requires_grad else []
        (slope,) = torch.autograd.grad(values, inside, create_graph=True, materialize_grads=True)
        return value, (slope, value, other)

    returned: tuple[Any, ...] = vjp(differentiated, point, has_aux=True)
    slope, value, other = returned[-1]
    return slope, value, other


def one_tensor(outputs: object) -> Tensor:
    """The outputs of a network. Raises `UsageError` unless they are a tensor."""
    if isinstance(outputs, Tensor):
        return outputs
    raise UsageError(
        f"the network returns a {type(outputs).__name__}, but one tensor is needed: let its "
        "forward return the outputs alone (nn.LSTM and the like return them first)"
    )
