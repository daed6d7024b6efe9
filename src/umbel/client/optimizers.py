"""Local optimisers as pure functions of flat vectors, from a gradient to a direction."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from umbel.checks import check, check_least
from umbel.settings import Settings

Memory: TypeAlias = tuple[Tensor, ...]


@dataclass(frozen=True)
class Optimizer(Settings, ABC):
    """Turns gradients (P,) into directions (P,); the caller subtracts lr times the direction."""

    @abstractmethod
    def start(self, weights: Tensor) -> Memory:
        """Return the memory before the first step."""

    @abstractmethod
    def step(self, gradient: Tensor, weights: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        """The direction, and the memory for the next step."""


@dataclass(frozen=True, kw_only=True)
class SGD(Optimizer):
    """Stochastic gradient descent at a client, with the same results as `torch.optim.SGD`.

    The only difference is weight decay of values that the forward pass does not use: here they
    decay, but `torch.optim.SGD` does not change parameters without a gradient.
    """

    momentum: float = 0.0  #: factor of the previous direction, in [0, 1)
    weight_decay: float = 0.0  #: L2 penalty, added to the gradient

    def __post_init__(self) -> None:
        check(0 <= self.momentum < 1, "momentum", self.momentum, "in [0, 1)")
        check_least(self, 0, "weight_decay")

    def start(self, weights: Tensor) -> Memory:
        return (weights * 0,) if self.momentum else ()

    def step(self, gradient: Tensor, weights: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        if self.weight_decay:
            gradient = gradient + self.weight_decay * weights
        if not self.momentum:
            return gradient, ()
        velocity = self.momentum * memory[0] + gradient
        return velocity, (velocity,)


@dataclass(frozen=True, kw_only=True)
class Adam(Optimizer):
    """Adam at a client, with the same results as `torch.optim.Adam`.

    Kingma & Ba 2015. Its running means start at zero in each request. Weight decay also affects
    values that the forward pass does not use, as in `SGD`.
    """

    beta1: float = 0.9  #: decay rate of the mean gradient
    beta2: float = 0.999  #: decay rate of the mean squared gradient
    epsilon: float = 1e-8  #: added to the divisor
    weight_decay: float = 0.0  #: L2 penalty, added to the gradient

    def __post_init__(self) -> None:
        check(0 <= self.beta1 < 1, "beta1", self.beta1, "in [0, 1)")
        check(0 <= self.beta2 < 1, "beta2", self.beta2, "in [0, 1)")
        check(self.epsilon > 0, "epsilon", self.epsilon, "more than 0")
        check_least(self, 0, "weight_decay")

    def start(self, weights: Tensor) -> Memory:
        # Steps are counted in double precision: powers of a decay rate round to 1 in smaller types.
        return weights * 0, weights * 0, weights.new_zeros((), dtype=torch.float64)

    def step(self, gradient: Tensor, weights: Tensor, memory: Memory) -> tuple[Tensor, Memory]:
        if self.weight_decay:
            gradient = gradient + self.weight_decay * weights
        mean, square, steps = memory
        steps = steps + 1
        mean = self.beta1 * mean + (1 - self.beta1) * gradient
        square = self.beta2 * square + (1 - self.beta2) * gradient * gradient
        unbiased = mean / (1 - self.beta1**steps)
        scale = (square / (1 - self.beta2**steps)).sqrt() + self.epsilon
        return unbiased / scale, (mean, square, steps)


OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam}
