"""A torch module and a loss, seen as functions of one flat vector theta (P,).

theta holds the trained parameters first, then whatever else a model carries as floating-point
numbers: frozen parameters and buffers, such as the running statistics of batch normalisation.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cached_property
from itertools import chain

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value

from umbel.checks import UsageError, check
from umbel.objectives import CLASSIFICATION, Objective
from umbel.shard import Batch


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


class Net:
    """Pure functions of theta, for any `nn.Module` that `build` makes.

    `build` is called again for every new model, under a seed: a module's own initialisation is
    what `new` returns.
    """

    def __init__(
        self, build: Callable[[], nn.Module], objective: Objective = CLASSIFICATION
    ) -> None:
        if isinstance(build, nn.Module):
            raise TypeError(
                "Net needs a function that builds the module, so that it can build it again under "
                "another seed: write Net(lambda: MyModule(...)) instead of Net(MyModule(...))"
            )
        self._build = build
        self.objective = objective
        self._training = self._built(seed=0).train()
        self._evaluating = copy.deepcopy(self._training).eval()
        self.layout, self.dtype = _layout(self._training)
        self._counters = _counters(self._training)

    @property
    def parts(self) -> list[nn.Module]:
        """The module and every module inside it."""
        return list(self._training.modules())

    def new(self, seed: int) -> Tensor:
        """A freshly initialised model: theta (P,), a pure function of the seed."""
        return self.flatten(self._built(seed))

    def flatten(self, module: nn.Module) -> Tensor:
        """theta (P,) of a module of this kind."""
        tensors = _tensors(module)
        entries = self.layout.weights + self.layout.rest
        return torch.cat([tensors[entry.name].detach().flatten() for entry in entries])

    def module(self, theta: Tensor) -> nn.Module:
        """A new module that holds the values of theta, in evaluation mode."""
        module = self._built(seed=0).eval()
        own = _tensors(module)
        with torch.no_grad():
            for name, values in self.layout.tensors(theta).items():
                own[name].copy_(values)
        return module

    def to(self, device: torch.device) -> Net:
        """The same net, with the constants of its module on another device."""
        moved = copy.copy(self)
        moved._training = copy.deepcopy(self._training).to(device)
        moved._evaluating = copy.deepcopy(self._evaluating).to(device)
        moved._counters = _counters(moved._training)
        return moved

    def outputs(self, theta: Tensor, x: Tensor) -> Tensor:
        """Outputs in evaluation mode: (B, ...)."""
        result: Tensor = functional_call(self._evaluating, self.layout.tensors(theta), (x,))
        return result

    def count_activations(self, x: Tensor) -> int:
        """How many values the layers put out for one example, given a batch of one or more."""
        counts = [0]

        def count(_module: nn.Module, _inputs: object, output: object) -> None:
            counts[0] += output.numel() if isinstance(output, Tensor) else 0

        leaves = [part for part in self._evaluating.modules() if not list(part.children())]
        hooks = [leaf.register_forward_hook(count) for leaf in leaves]
        with torch.no_grad():
            self._evaluating(x)
        for hook in hooks:
            hook.remove()
        return counts[0] // len(x)

    def losses(self, theta: Tensor, batch: Batch) -> Tensor:
        """Loss of each example in evaluation mode: (B,)."""
        return self.objective.losses(self.outputs(theta, batch.x), batch.y)

    def gradient(
        self, theta: Tensor, batch: Batch, factors: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Gradient of the mean loss in training mode, and the rest of theta after the pass.

        `factors` (B,), if given, multiply the examples' losses before the mean is taken.
        The gradient has shape (num_weights,). The rest (P - num_weights,) has moved where the
        module keeps statistics of what it saw, as batch normalisation does.
        """
        gradient, _, rest = self._pass(theta, batch, factors)
        return gradient, rest

    def gradient_and_loss(self, theta: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Gradient (num_weights,) of the mean loss in training mode, and that loss ()."""
        gradient, loss, _ = self._pass(theta, batch)
        return gradient, loss

    def _pass(
        self, theta: Tensor, batch: Batch, factors: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Forward and back in training mode: the gradient, the mean loss, the rest of theta."""
        cut = self.layout.num_weights
        gradient, (loss, rest) = grad_and_value(self.training_loss, has_aux=True)(
            theta[:cut], theta[cut:], batch, factors
        )
        return gradient, loss, rest

    def training_loss(
        self, weights: Tensor, rest: Tensor, batch: Batch, factors: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mean loss () in training mode, and the rest of theta after the pass."""
        rest = rest.clone()  # the module updates its buffers in place
        tensors = {
            **unflatten(weights, self.layout.weights),
            **unflatten(rest, self.layout.rest),
            **{name: buffer.clone() for name, buffer in self._counters},
        }
        outputs: Tensor = functional_call(self._training, tensors, (batch.x,))
        losses = self.objective.losses(outputs, batch.y)
        return batch.mean(losses if factors is None else losses * factors), rest

    def _built(self, seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self._build()
        if not isinstance(module, nn.Module):
            raise TypeError(f"Net: build returned {module!r}, which is not an nn.Module")
        return module


def _tensors(module: nn.Module) -> dict[str, Tensor]:
    return dict(chain(module.named_parameters(), module.named_buffers()))


def _counters(module: nn.Module) -> list[tuple[str, Tensor]]:
    """Buffers that are no floating-point numbers: they belong to the module, not to theta."""
    return [(name, b) for name, b in module.named_buffers() if not b.is_floating_point()]


def _layout(module: nn.Module) -> tuple[Layout, torch.dtype]:
    tensors = {name: t for name, t in _tensors(module).items() if t.is_floating_point()}
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
