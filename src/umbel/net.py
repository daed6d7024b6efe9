"""A torch module and a loss, seen as functions of one flat vector theta (P,).

theta holds the trained parameters first, then frozen parameters and the buffers that training
moves, such as the running statistics of batch normalisation. All other buffers, such as masks and
tables of positions, are constants of the module: all models share those of the first one built.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad_and_value, vmap

from umbel.checks import UsageError, check
from umbel.constants import constants_of, same, scratch_of
from umbel.descent import Descent
from umbel.kernels.dense import recognise
from umbel.kernels.in_place import InPlace
from umbel.kernels.stacked import Stacked
from umbel.layout import layout_of, tensors_of, unflatten
from umbel.notebooks import cut
from umbel.objectives import CLASSIFICATION, REGRESSION, Objective
from umbel.optimizers import SGD
from umbel.shard import Batch, Shard, Step, Steps
from umbel.summary import counted

Kernel: TypeAlias = Literal["general", "dense", "in-place"]
"""How: any module, many at once if need be; a chain of linear layers; one after another."""

Precision: TypeAlias = Literal["full", "bf16"]


class Net:
    """Pure functions of theta, for any `nn.Module` that `build` makes.

    `build` is called again for every new model, under a seed: a module's own initialisation is
    what `new` returns. theta holds what a client trains and the statistics of torch's own
    normalisations; buffers of your own that training moves, such as a running mean, are named by
    patterns in `moving`. Raises `UsageError` where the module has nothing to train, where theta
    would mix types, and for a pattern that names no buffer.
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        objective: Objective = CLASSIFICATION,
        *,
        moving: Sequence[str] = (),
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
        self.layout, self.dtype = layout_of(self._training, moving)
        self._scratch = scratch_of(self._training, self.layout)
        self._one_by_one = False
        self._use("general", "full")

    def __repr__(self) -> str:
        return f"Net: {type(self._training).__name__}, {self._said}"

    def _repr_html_(self) -> str:
        entries = [(entry, "yes") for entry in self.layout.weights]
        entries += [(entry, "no") for entry in self.layout.rest]
        rows = [(e.name, str(tuple(e.shape)), f"{e.shape.numel():,}", on) for e, on in entries]
        table = cut(("tensor", "shape", "values", "trained"), rows, repr(self), "tensors")
        return table._repr_html_()

    @property
    def _said(self) -> str:
        held = self.layout.num_values - self.layout.num_weights
        kinds = [(CLASSIFICATION, "classification"), (REGRESSION, "regression")]
        for_what = [name for objective, name in kinds if objective is self.objective]
        trained = counted(self.layout.num_weights, "trained value")
        return f"{trained}{f' and {held:,} others' if held else ''}, " + (
            for_what[0] if for_what else "an objective of its own"
        )

    @property
    def parts(self) -> list[nn.Module]:
        """The module and every module inside it."""
        return list(self._training.modules())

    def new(self, seed: int) -> Tensor:
        """A freshly initialised model: theta (P,), a pure function of the seed."""
        return self.flatten(self._built(seed))

    def flatten(self, module: nn.Module) -> Tensor:
        """theta (P,) of a module of this kind."""
        tensors = tensors_of(module)
        entries = self.layout.weights + self.layout.rest
        return torch.cat([tensors[entry.name].detach().flatten() for entry in entries])

    def module(self, theta: Tensor) -> nn.Module:
        """A new module that holds the values of theta, in evaluation mode."""
        module = copy.deepcopy(self._evaluating)
        own = tensors_of(module)
        with torch.no_grad():
            for name, values in self.layout.tensors(theta).items():
                own[name].copy_(values)
        return module

    def to(self, device: torch.device) -> Net:
        """The same net, with the constants of its module on another device."""
        moved = copy.copy(self)
        moved._training = copy.deepcopy(self._training).to(device)
        moved._evaluating = copy.deepcopy(self._evaluating).to(device)
        moved._scratch = scratch_of(moved._training, moved.layout)
        moved._use(self._kernel, self._precision)
        return moved

    @property
    def is_dense(self) -> bool:
        """Whether the module is a chain of linear layers, which `using` knows a faster way for."""
        return recognise(self._training, self.objective) is not None

    def using(self, kernel: Kernel, precision: Precision = "full") -> Net:
        """The same net, which computes in another way.

        Raises `ValueError` where that can't be.
        """
        if kernel == "dense":
            expected = "possible: only a chain of linear layers with ReLU between them is dense"
            check(self.is_dense, "engine.kernel", kernel, expected)
            check(precision == "full", "engine.precision", precision, '"full" with this kernel')
        other = copy.copy(self)
        other._use(kernel, precision)
        return other

    def one_by_one(self) -> Net:
        """The same net, which goes through models one after another: any module can do that."""
        other = copy.copy(self)
        other._one_by_one = True
        return other

    def each(self, function: Callable[[Tensor], Tensor], models: Tensor) -> Tensor:
        """What a function makes of each of `models` (K, P): (K, ...)."""
        if self._one_by_one:
            return torch.stack([function(theta) for theta in models])
        found: Tensor = vmap(function)(models)
        return found

    def _use(self, kernel: Kernel, precision: Precision) -> None:
        self._kernel, self._precision = kernel, precision
        self._cast_to = torch.bfloat16 if precision == "bf16" else None
        self._dense = recognise(self._training, self.objective) if kernel == "dense" else None
        self._in_place: InPlace | None = None
        if kernel == "in-place":
            weights, rest = (
                [entry.name for entry in part] for part in (self.layout.weights, self.layout.rest)
            )
            self._in_place = InPlace(
                self._training, weights, rest, list(self._scratch), self.objective, self._cast_to
            )

    def outputs(self, theta: Tensor, x: Tensor) -> Tensor:
        """Outputs in evaluation mode: (B, ...)."""
        if self._dense is None or not self._dense.takes(x):
            return self._outputs(theta, x)
        general = lambda one, examples: (self._outputs(one, examples),)  # noqa: E731
        (result,) = Stacked(self._dense.outputs, general, by_example=True)(theta, x)
        return result

    def _outputs(self, theta: Tensor, x: Tensor) -> Tensor:
        with self._cast(x):
            return _one_tensor(functional_call(self._evaluating, self.layout.tensors(theta), (x,)))

    def _cast(self, x: Tensor) -> AbstractContextManager[Any]:
        if self._cast_to is None:
            return nullcontext()
        return torch.autocast(x.device.type, self._cast_to)

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

    def moved_constants(self, x: Tensor) -> list[str]:
        """The names of the constants of the module that training on x changes: none should be."""
        constants, trained = (
            constants_of(self._training, self.layout),
            copy.deepcopy(self._training),
        )
        with torch.no_grad(), torch.random.fork_rng(devices=[]):
            trained(x)
        after = dict(trained.named_buffers())
        return [name for name, buffer in constants.items() if not same(buffer, after[name])]

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
        if self._dense is not None and self._dense.takes(batch.x, batch.y):
            shares = batch.shares(theta.dtype)
            shares = shares if factors is None else shares * factors
            both = Stacked(self._dense.gradient, self._weighted_pass)
            gradient, loss = both(theta, batch.x, batch.y, shares)
            return gradient, loss, theta[len(gradient) :]
        cut = self.layout.num_weights
        gradient, (loss, rest) = grad_and_value(self.training_loss, has_aux=True)(
            theta[:cut], theta[cut:], batch, factors
        )
        return gradient, loss, rest

    def _weighted_pass(
        self, theta: Tensor, x: Tensor, y: Tensor, factors: Tensor
    ) -> tuple[Tensor, ...]:
        """Gradient of the sum of losses times factors (B,), and that sum, of a net without rest."""
        gradient, (mean, _) = grad_and_value(self.training_loss, has_aux=True)(
            theta, theta[:0], Batch(x, y), factors
        )
        return gradient * len(x), mean * len(x)

    def descend(self, theta: Tensor, shard: Shard, descent: Descent) -> Tensor:
        """The update (P,): theta after a step on each planned mini-batch, minus theta."""
        if self._in_place is not None:
            return self._in_place.descend(theta, shard.batches(), descent)
        plain = type(descent.optimizer) is SGD
        if self._dense is not None and self._dense.takes(shard.x, shard.y) and plain:
            fast = partial(self._dense.descend, descent, shard.x, shard.y)

            def general(one: Tensor, rows: Tensor) -> tuple[Tensor]:
                planned = Steps(rows, [Step(row, padded=True, may_be_empty=True) for row in rows])
                return (self._descend(one, replace(shard, planned=planned), descent),)

            (update,) = Stacked(fast, general)(theta, shard.planned.rows)
            return update
        return self._descend(theta, shard, descent)

    def _descend(self, theta: Tensor, shard: Shard, descent: Descent) -> Tensor:
        received, cut = theta, self.layout.num_weights
        memory = descent.optimizer.start(received[:cut])
        for batch in shard.batches():
            gradient, rest = self.gradient(theta, batch)
            if descent.proximal:
                gradient = gradient + descent.proximal * (theta[:cut] - received[:cut])
            theta, memory = descent.step(theta, gradient, rest, memory, batch)
        return theta - received

    def training_loss(
        self, weights: Tensor, rest: Tensor, batch: Batch, factors: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mean loss () in training mode, and the rest of theta after the pass."""
        rest = rest.clone()  # the module updates its buffers in place
        tensors = {
            **unflatten(weights, self.layout.weights),
            **unflatten(rest, self.layout.rest),
            **{name: buffer.clone() for name, buffer in self._scratch.items()},
        }
        with self._cast(batch.x):
            outputs = _one_tensor(functional_call(self._training, tensors, (batch.x,)))
        losses = self.objective.losses(outputs, batch.y)
        return batch.mean(losses if factors is None else losses * factors), rest

    def _built(self, seed: int) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            module = self._build()
        if not isinstance(module, nn.Module):
            kind = type(module).__name__
            raise TypeError(f"Net: build returned a {kind}, which is not an nn.Module")
        return module


def _one_tensor(outputs: object) -> Tensor:
    if isinstance(outputs, Tensor):
        return outputs
    raise UsageError(
        f"the network returns a {type(outputs).__name__}, and one tensor is needed: let its "
        "forward return the outputs alone (nn.LSTM and the like return them first)"
    )
