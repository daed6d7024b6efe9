"""A torch module and a loss, seen as functions of one flat vector theta (P,).

theta holds the trained parameters first, then the buffers that training changes, such as the
running statistics of batch normalisation. Frozen parameters and all other buffers, such as masks
and tables of positions, are constants of the module: all models share the constants of the first
module built.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TypeAlias

import torch
from torch import Tensor, nn
from torch.func import vmap

from umbel.checks import check
from umbel.client.batches import Batch, Shard
from umbel.client.constants import constants_of, copied, digest_of
from umbel.client.descent import Rule
from umbel.client.experts import routed_modules
from umbel.client.kernel_choice import KernelName, Precision, Way, kernel_of
from umbel.client.kernels.dense import recognise
from umbel.client.kernels.general import General
from umbel.client.kernels.modules import Modules
from umbel.client.layout import Entry, Layout, choose_trained, tensors_of
from umbel.client.objectives import CLASSIFICATION, OBJECTIVES, Objective
from umbel.client.process_locks import plain_attention
from umbel.client.seeding import drawing_from
from umbel.notebooks import cut
from umbel.settings import hinting
from umbel.summary import counted

Terms: TypeAlias = Callable[[Batch], Callable[[Tensor], Tensor]]
"""A mini-batch -> a function that gives, for features (B, F), a term of each loss (B,)."""


class Net:
    """A network as pure functions of one flat vector theta (P,), for modules made by `build`.

    >>> import torch
    >>> net = umbel.Net(lambda: torch.nn.Linear(5, 2))
    >>> net
    Net: Linear, 12 trained values, classification
    >>> net.new(seed=0).shape
    torch.Size([12])

    `objective` defines the loss and the accuracy. `build` is called again for every new model, with
    a seed: `new` returns the module's own initial values. `build` must return a new module each
    time: the net keeps the first one for itself, in training mode. theta holds the trained
    parameters and the running statistics of torch's normalisation layers. Name other buffers that
    training changes, such as a running mean of your own, by patterns in `moving`.

    The trained parameters are those that require gradients, or those that match a pattern of
    `trained`, such as `["head.*", "*lora*"]`. All others are frozen, and may have any type: they
    are built once, with seed 0, shared by all models, and never sent, averaged, compared or saved.

    Raises `TypeError` if `build` is a module instead of a function, and `UsageError` if no
    parameter is trained, if theta would mix types, or if a pattern matches nothing.
    """

    @hinting
    def __init__(
        self,
        build: Callable[[], nn.Module],
        objective: Objective = CLASSIFICATION,
        *,
        trained: Sequence[str] | None = None,
        moving: Sequence[str] = (),
        modules: Modules | None = None,
        way: Way | None = None,
    ) -> None:
        if isinstance(build, nn.Module):
            raise TypeError(
                "Net needs a function that builds the module, so that it can build it again under "
                "another seed: write Net(lambda: MyModule(...)) instead of Net(MyModule(...))"
            )
        expected = "a function that builds a module; write Net(lambda: MyModule(...))"
        check(callable(build), "build", build, expected)
        known = ", ".join(f"umbel.{name.upper()}" for name in OBJECTIVES)
        expected = f"an umbel.Objective, such as {known}"
        check(isinstance(objective, Objective), "objective", objective, expected)
        for name, patterns in (("moving", moving), ("trained", trained)):
            check(not isinstance(patterns, str), name, patterns, f"a list; write [{patterns!r}]")
        self.build, self.objective, self.moving = build, objective, tuple(moving)
        self.trained = None if trained is None else tuple(trained)
        self.way = way or Way()
        self.modules = modules or Modules.of(self.built(seed=0), moving)
        self.kernel = kernel_of(self.modules, objective, self.way)
        self.mixtures: dict[int, Net] = {}  # nets made by `routed`, which take time to build

    def __repr__(self) -> str:
        return f"Net: {type(self.modules.training).__name__}, {self._said}"

    def _repr_html_(self) -> str:
        entries = [(entry, "yes") for entry in self.layout.weights]
        entries += [(entry, "no") for entry in self.layout.rest]
        entries += [(Entry(n, t.shape), "frozen") for n, t in self.modules.frozen.items()]
        rows = [(e.name, str(tuple(e.shape)), f"{e.shape.numel():,}", on) for e, on in entries]
        table = cut(("tensor", "shape", "values", "trained"), rows, repr(self), "tensors")
        return table._repr_html_()

    @property
    def _said(self) -> str:
        held, frozen = self.layout.num_values - self.layout.num_weights, self.num_frozen
        more = f" and {held:,} others" if held else ""
        more += f" and {frozen:,} frozen" if frozen else ""
        for_what = [name for name, kind in OBJECTIVES.items() if kind == self.objective]
        trained = counted(self.layout.num_weights, "trained value")
        return f"{trained}{more}, " + (for_what[0] if for_what else "an objective of its own")

    @property
    def layout(self) -> Layout:
        """The names and shapes of the values of theta."""
        return self.modules.layout

    @property
    def dtype(self) -> torch.dtype:
        """The type of theta."""
        return self.modules.dtype

    @property
    def eps(self) -> float:
        """The relative rounding error of the coarsest type that it computes with."""
        kinds = {self.dtype, *(tensor.dtype for tensor in self.modules.frozen.values())}
        return max(torch.finfo(kind).eps for kind in kinds if kind.is_floating_point)

    @property
    def num_frozen(self) -> int:
        """The number of frozen values of the module, which are in no model."""
        return sum(tensor.numel() for tensor in self.modules.frozen.values())

    @cached_property
    def frozen_digest(self) -> str:
        """A digest of the frozen values, equal if all bits are equal; "" if there are none."""
        return digest_of(self.modules.frozen)

    @property
    def parts(self) -> list[nn.Module]:
        """The module and every module inside it."""
        return list(self.modules.training.modules())

    def new(self, seed: int) -> Tensor:
        """A freshly initialised model: theta (P,), a pure function of the seed."""
        return self.flatten(self.built(seed))

    def flatten(self, module: nn.Module) -> Tensor:
        """theta (P,) of a module with this net's layout."""
        tensors = tensors_of(module)
        entries = self.layout.weights + self.layout.rest
        return torch.cat([tensors[entry.name].detach().flatten() for entry in entries])

    def module(self, theta: Tensor) -> nn.Module:
        """A new module that holds the values of theta, in evaluation mode."""
        return self.modules_of(theta[None])[0]

    def modules_of(self, models: Tensor) -> list[nn.Module]:
        """New modules of these models (K, P), in evaluation mode, all with the same constants."""
        first = copied(self.modules.evaluating)
        shared = {id(each): each for each in constants_of(first, self.layout).values()}
        modules = [first, *(copied(first, shared) for _ in models[1:])]
        with torch.no_grad():
            for module, theta in zip(modules, models, strict=True):
                own = tensors_of(module)
                for name, values in self.layout.tensors(self.settled(theta)).items():
                    own[name].copy_(values)
        return modules

    def to(self, device: torch.device) -> Net:
        """The same net, with the constants of its module on another device."""
        return self._like(self.modules.to(device), self.way)

    @property
    def is_dense(self) -> bool:
        """Whether the module is a chain of linear layers, for which `using` has a faster kernel."""
        return recognise(self.modules.training, self.objective) is not None

    def using(self, kernel: KernelName, precision: Precision = "full") -> Net:
        """The same net with another kernel or precision.

        Raises `UsageError` if that is not possible.
        """
        if kernel == "dense":
            expected = "possible: only a chain of linear layers with ReLU between them is dense"
            check(self.is_dense, "engine.kernel", kernel, expected)
        return self._like(self.modules, replace(self.way, kernel=kernel, precision=precision))

    def computing(self, way: Way) -> Net:
        """The same net with this way of computing."""
        return self._like(self.modules, way)

    def in_parts(self, size: int) -> Net:
        """The same net, which computes mini-batches in parts of `size` examples.

        Raises `UsageError` if training changes statistics of whole batches.
        """
        moved = [entry.name for entry in self.layout.rest]
        expected = f"allowed: {moved[:1]} is updated by whole mini-batches"
        check(not moved, "engine.micro_batch_size", size, expected)
        return self._like(self.modules, replace(self.way, micro_batch=size))

    def one_by_one(self) -> Net:
        """The same net, which computes models one after another, as any module can."""
        return self._like(self.modules, replace(self.way, one_by_one=True))

    def whole(self, mixes: bool) -> Net:
        """The same net; if it mixes examples, it takes full gradients in one batch."""
        return self._like(self.modules, replace(self.way, whole=mixes))

    def routed(self, experts: int) -> Net:
        """The same network with mixtures of experts as adapters: see `umbel.client.routing`."""
        if experts not in self.mixtures:
            self.mixtures[experts] = self._like(routed_modules(self.modules, experts), self.way)
        return self.mixtures[experts]

    def _like(self, modules: Modules, way: Way) -> Net:
        return Net(
            self.build,
            self.objective,
            trained=self.trained,
            moving=self.moving,
            modules=modules,
            way=way,
        )

    def built(self, seed: int) -> nn.Module:
        """A new module, as `build` makes it under this seed, with the parameters to be trained."""
        with drawing_from(seed):
            module = self.build()
        if not isinstance(module, nn.Module):
            kind = type(module).__name__
            raise TypeError(f"Net: build returned a {kind}, which is not an nn.Module")
        if self.trained is not None:
            choose_trained(module, self.trained)
        return module

    def each(self, function: Callable[..., Tensor], models: Tensor, *of_each: Tensor) -> Tensor:
        """Apply a function to each of `models` (K, P), and stack the results: (K, ...).

        Further arguments (K, ...) have a row for each model.
        """
        if self.way.one_by_one:
            rows = zip(models, *of_each, strict=True)
            return torch.stack([function(*row) for row in rows])
        results: Tensor = vmap(function)(models, *of_each)
        return results

    def settled(self, theta: Tensor) -> Tensor:
        """theta (P,) whose parametrisations have the state that belongs to its weights.

        All passes begin with it: the state that a mean of models holds belongs to other weights.
        """
        return self.modules.settled(theta)

    def outputs(self, theta: Tensor, x: Tensor) -> Tensor:
        """Outputs in evaluation mode: (B, ...)."""
        return self.kernel.outputs(self.settled(theta), x)

    def losses(self, theta: Tensor, batch: Batch) -> Tensor:
        """Loss of each example in evaluation mode: (B,)."""
        return self.objective.losses(self.outputs(theta, batch.x), batch.y)

    def gradient(
        self, theta: Tensor, batch: Batch, factors: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Gradient of the mean loss in training mode, and the rest of theta after the pass.

        `factors` (B,), if given, multiply the examples' losses before the mean is taken. The
        gradient has shape (num_weights,). The rest (P - num_weights,) changes if the module keeps
        statistics of its inputs, as batch normalisation does.
        """
        gradient, _, rest = self.kernel.gradient(self.settled(theta), batch, factors)
        return gradient, rest

    def gradient_and_loss(self, theta: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
        """Gradient (num_weights,) of the mean loss in training mode, and that loss ()."""
        gradient, loss, _ = self.kernel.gradient(self.settled(theta), batch)
        return gradient, loss

    def descend(
        self, theta: Tensor, shard: Shard, rule: Rule, factors: Tensor | None = None
    ) -> Tensor:
        """The change of theta (P,) by the planned mini-batches, as `rule` says.

        It is (P,) by a `Descent`. `factors` (S, B), if given, multiply the losses of each
        mini-batch's examples.
        """
        begun = self.settled(theta)
        update = self.kernel.descend(begun, shard, rule, factors)
        if begun is not theta:
            update[..., : len(theta)] += begun - theta
        return update

    def features(self, theta: Tensor, x: Tensor, layer: str = "") -> Tensor:
        """What a layer gives for inputs (B, ...) in evaluation mode: (B, F).

        `layer` is its name in the module; "" stands for what the last trained layer is given.
        Raises `UsageError` if no layer has this name.
        """
        return General(self.modules, self.objective).features(self.settled(theta), x, layer)

    def descend_with(
        self, theta: Tensor, shard: Shard, rule: Rule, terms: Terms, layer: str = ""
    ) -> Tensor:
        """Do as `descend`, with terms of the features added to the losses of examples.

        Features are those of `features`, in training mode.
        """
        step = General(self.modules, self.objective).gradient_with
        return rule.by_gradients(
            lambda at, batch, _: step(self.settled(at), batch, layer, terms(batch)), theta, shard
        )

    def training_loss(self, weights: Tensor, rest: Tensor, batch: Batch) -> Tensor:
        """Mean loss () in training mode and full precision, which has second derivatives."""
        general = General(self.modules, self.objective)
        with plain_attention():
            return general.loss(weights, rest, batch)[0]
