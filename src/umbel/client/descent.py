"""Gradient descent of a model on its mini-batches, and of functions made of the loss."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol, Self, TypeAlias

import torch
from torch import Tensor

from umbel.client.batches import Batch, Shard
from umbel.client.optimizers import SGD, Memory, Optimizer
from umbel.summary import in_short

Gradient: TypeAlias = Callable[[Tensor, Batch, Tensor | None], tuple[Tensor, Tensor, Tensor]]
"""A function with the arguments and results of `Kernel.gradient`."""

Variant: TypeAlias = Literal["first-order", "hessian-free", "exact"]

Spans: TypeAlias = tuple[tuple[int, int], ...]
"""Ranges of theta, each with its first value and its end."""


def held(factor: float, values: Tensor) -> float:
    """The factor, limited to the range of these values' type; training diverges beyond it."""
    most = torch.finfo(values.dtype).max
    return max(-most, min(factor, most))


class Rule(Protocol):
    """How the mini-batches of a client move a model."""

    @property
    def outer(self) -> Descent:
        """The steps of the model itself."""
        ...

    @property
    def held(self) -> tuple[Tensor, ...]:
        """The tensors that the rule has for each client."""
        ...

    def holding(self, *tensors: Tensor) -> Self:
        """The same rule with other tensors, as in `held`."""
        ...

    def by_gradients(
        self, gradient: Gradient, theta: Tensor, shard: Shard, factors: Tensor | None = None
    ) -> Tensor:
        """The change of theta (P,), by gradients at one model after another; see `Kernel`."""
        ...


@dataclass(frozen=True)
class Descent:
    """Gradient steps, each on one mini-batch."""

    lr: float
    proximal: float  # mu of FedProx: adds mu/2 |theta - received|^2 to the loss
    optimizer: Optimizer
    # (num_weights,), added to each gradient; None: nothing is
    constant: Tensor | None = field(default=None, compare=False)
    spans: Spans | None = None  # the values of theta that move, in whole tensors; None: all

    __repr__ = in_short

    @property
    def outer(self) -> Descent:
        """These steps: nothing is computed for them but gradients."""
        return self

    @property
    def held(self) -> tuple[Tensor, ...]:
        """The constant, if there is one."""
        return () if self.constant is None else (self.constant,)

    def holding(self, *tensors: Tensor) -> Descent:
        """The same steps with another constant."""
        return replace(self, constant=tensors[0]) if tensors else self

    def moves(self, first: int) -> bool:
        """Whether the tensor whose values begin here in theta is moved."""
        return self.spans is None or any(begin <= first < end for begin, end in self.spans)

    def start(self, received: Tensor) -> Memory:
        """Return the memory before the first step from the received weights."""
        inside = self.optimizer.start(received)
        return (*inside, received) if self.proximal else inside

    def direction(self, gradient: Tensor, weights: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """Return the direction, from which `lr` times it is subtracted, and the next memory."""
        if self.constant is not None:
            gradient = gradient + self.constant
        if not self.proximal:
            return self.optimizer.step(gradient, weights, memory)
        *inside, received = memory
        slope = gradient + self.proximal * (weights - received)
        direction, after = self.optimizer.step(slope, weights, tuple(inside))
        return direction, (*after, received)

    def step(
        self, theta: Tensor, gradient: Tensor, rest: Tensor, memory: Memory, batch: Batch
    ) -> tuple[Tensor, Memory]:
        """theta (P,) after a step down the gradient (num_weights,), and the memory after it.

        The rest of theta is replaced by `rest`. A batch of only padding changes nothing.
        """
        weights = theta[: len(gradient)]
        direction, after = self.direction(gradient, weights, memory)
        weights = weights - self.lr * direction
        moved = torch.cat([weights, rest]) if len(rest) else weights
        if self.spans is not None:
            moved = torch.where(_inside(self.spans, moved), moved, theta)
        theta, *kept = batch.unless_empty((moved, *after), (theta, *memory))
        return theta, tuple(kept)

    def by_gradients(
        self, gradient: Gradient, theta: Tensor, shard: Shard, factors: Tensor | None = None
    ) -> Tensor:
        received, memory = theta, None
        for batch, own in weighted(shard, factors):
            slope, _, rest = gradient(theta, batch, own)
            memory = self.start(received[: len(slope)]) if memory is None else memory
            theta, memory = self.step(theta, slope, rest, memory, batch)
        return theta - received


def _inside(spans: Spans, theta: Tensor) -> Tensor:
    """(P,) whether each value of theta is in one of these ranges."""
    inside = torch.zeros(len(theta), dtype=torch.bool, device=theta.device)
    for begin, end in spans:
        inside[begin:end] = True
    return inside


class Unheld:
    """A rule without tensors."""

    @property
    def held(self) -> tuple[Tensor, ...]:
        """None."""
        return ()

    def holding(self, *tensors: Tensor) -> Self:
        """The rule itself."""
        assert not tensors
        return self


@dataclass(frozen=True)
class Moreau(Unheld):
    """Descent of the loss's Moreau envelope, min_theta f(theta) + pull/2 |theta - w|^2.

    Dinh et al. 2020, Algorithm 1. The change is (2, P): of w, and of the personal model theta.
    """

    outer: Descent  # the steps of w, against the gradient pull (w - theta)
    pull: float  # lambda, the weight of the penalty
    steps: int  # K, number of steps of theta on each mini-batch
    lr: float  # learning rate of those steps

    @property
    def inner(self) -> Descent:
        """The steps of theta, whose penalty is for the distance from w."""
        return Descent(self.lr, self.pull, SGD())

    def by_gradients(
        self, gradient: Gradient, theta: Tensor, shard: Shard, factors: Tensor | None = None
    ) -> Tensor:
        model, personal, memory = theta, theta, None
        for batch, own in weighted(shard, factors):
            for _ in range(self.steps):
                slope, _, rest = gradient(personal, batch, own)
                cut = len(slope)
                personal, _ = self.inner.step(personal, slope, rest, (model[:cut],), batch)
            away = self.pull * (model[:cut] - personal[:cut])
            memory = self.outer.start(theta[:cut]) if memory is None else memory
            model, memory = self.outer.step(model, away, personal[cut:], memory, batch)
        return torch.stack([model, personal]) - theta


@dataclass(frozen=True)
class Meta(Unheld):
    """Descent of f(w - alpha grad f(w)), the loss after a gradient step (Fallah et al. 2020).

    Its gradient is (I - alpha H(w)) grad f(w - alpha grad f(w)). Each factor has a mini-batch of
    its own, in the order: inner gradient, outer gradient v, and the Hessian H, which "first-order"
    leaves out.
    """

    outer: Descent
    alpha: float  # learning rate of the inner step
    variant: Variant
    delta: float  # "hessian-free": H v by the gradients at w + delta v and w - delta v
    curved: Callable[[Tensor, Tensor, Batch], Tensor]  # v (num_weights,), w (P,), batch -> H v

    def by_gradients(
        self, gradient: Gradient, theta: Tensor, shard: Shard, factors: Tensor | None = None
    ) -> Tensor:
        received, memory, batches = theta, None, weighted(shard, factors)
        for batch, own in batches:
            slope, _, rest = gradient(theta, batch, own)
            ahead = torch.cat([theta[: len(slope)] - self.alpha * slope, rest])
            slope, _, rest = gradient(ahead, *next(batches))
            if self.variant != "first-order":
                slope = slope - self.alpha * self.curved(slope, theta, next(batches)[0])
            memory = self.outer.start(received[: len(slope)]) if memory is None else memory
            theta, memory = self.outer.step(theta, slope, rest, memory, batch)
        return theta - received


@dataclass(frozen=True)
class Beside:
    """Descent of a model w, and of another one v on the same mini-batches.

    With a share, v descends through the mixture share v + (1 - share) w, from the values before
    each step (Deng et al. 2020, Algorithm 1), and statistics of v are those of the mixture. Without
    one, v is pulled to w as received (Li et al. 2021, Algorithm 1). The change is (2, P): of w from
    there, and of v from what it is pulled to, w as received or v itself. With a share, both have
    one more value: 0, and the derivative of the first mini-batch's loss by the share.
    """

    outer: Descent  # the steps of w
    inner: Descent  # the steps of v, by the same optimiser
    own: Tensor  # (P,) v, before the first step
    share: Tensor | None = None  # () the share of v; None: v is not mixed

    __repr__ = in_short

    @property
    def held(self) -> tuple[Tensor, ...]:
        """v, and its share if there is one."""
        return (self.own,) if self.share is None else (self.own, self.share)

    def holding(self, *tensors: Tensor) -> Beside:
        """The same steps of another v."""
        own, *share = tensors
        return replace(self, own=own, share=share[0] if share else None)

    def by_gradients(
        self, gradient: Gradient, theta: Tensor, shard: Shard, factors: Tensor | None = None
    ) -> Tensor:
        model, own, memory, memory_of_own, by_share = theta, self.own, None, None, None
        near = theta if self.share is None else own
        for batch, weights in weighted(shard, factors):
            slope, _, rest = gradient(model, batch, weights)
            cut, point = len(slope), own
            if self.share is not None:
                point = torch.cat([torch.lerp(model[:cut], own[:cut], self.share), own[cut:]])
            if memory is None or memory_of_own is None:
                memory = self.outer.start(theta[:cut])
                memory_of_own = self.inner.start(near[:cut])
            model, memory = self.outer.step(model, slope, rest, memory, batch)
            slope, _, rest = gradient(point, batch, weights)
            if self.share is not None:
                by_share = torch.dot((own - theta)[:cut], slope) if by_share is None else by_share
                slope = self.share * slope
            own, memory_of_own = self.inner.step(own, slope, rest, memory_of_own, batch)
        changes = torch.stack([model - theta, own - near])
        if by_share is None:
            return changes
        return torch.cat([changes, torch.stack([by_share * 0, by_share])[:, None]], 1)


def weighted(shard: Shard, factors: Tensor | None) -> Iterator[tuple[Batch, Tensor | None]]:
    """The planned mini-batches, each with the factors (B,) of its examples' losses, from (S, B)."""
    for number, batch in enumerate(shard.batches()):
        own = None if factors is None else factors[number]
        if own is not None and len(own) > len(batch.x):  # of a plan with padding, left out here
            own = own[shard.planned.rows[number] >= 0]
        yield batch, own
