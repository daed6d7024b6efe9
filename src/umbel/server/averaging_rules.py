"""Rules of averages: how clients' updates become steps of the models."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import torch
from torch import Tensor

from umbel.checks import check
from umbel.reduction import Sums, Updates
from umbel.settings import Settings

Moments: TypeAlias = tuple[Tensor, ...]
"""What a rule remembers of earlier rounds: tensors (K, W), a row for each model."""


@dataclass(frozen=True)
class AveragingRule(Settings, ABC):
    """How the updates of a cluster's clients become a step of its model: `averaging.rule`.

    A rule of your own is a frozen dataclass that overrides `mean`, such as by a median, or `step`,
    or both. `mean` gets sums over clusters, or `Updates`, a row for each client, if it sets
    `needs_rows`: no engine sums then.
    """

    needs_rows: ClassVar[bool] = False  #: whether `mean` gets `Updates` in place of `Sums`
    #: whether `mean` depends on where updates start, so that rows can't be whole models
    from_origin: ClassVar[bool] = False

    def check_cohort(self, num_clients: int, cohort: int) -> None:
        """Raise `UsageError` if the rule can't work with so many clients, or asked in a round."""

    def mean(self, updates: Sums | Updates) -> Tensor:
        """Return the mean update of each cluster (K, P); 0 for a cluster without clients."""
        return updates.means()

    def start(self, mean: Tensor) -> Moments:  # noqa: ARG002
        """Return the moments before the first step, for models with means like these (K, W)."""
        return ()

    def step(self, mean: Tensor, moments: Moments) -> tuple[Tensor, Moments]:
        """Return the steps of the models from mean updates (K, W), and the next moments.

        W is the number of trained values: statistics of normalisation layers move by their mean.
        """
        return mean, moments


@dataclass(frozen=True)
class Mean(AveragingRule):
    """The model moves by the weighted mean of the updates (McMahan et al. 2017)."""


@dataclass(frozen=True, kw_only=True)
class FedAvgM(AveragingRule):
    """Momentum at the server: u <- momentum u + mean update, and the model moves by lr u.

    See Hsu, Qi & Brown, arXiv 1909.06335; heavy ball, without a factor 1 - momentum.
    """

    lr: float = 1.0  #: learning rate of the server
    momentum: float = 0.9  #: factor of the previous direction, in [0, 1)

    def __post_init__(self) -> None:
        check(self.lr > 0, "lr", self.lr, "more than 0")
        check(0 <= self.momentum < 1, "momentum", self.momentum, "in [0, 1)")

    def start(self, mean: Tensor) -> Moments:
        return (torch.zeros_like(mean),)

    def step(self, mean: Tensor, moments: Moments) -> tuple[Tensor, Moments]:
        velocity = self.momentum * moments[0] + mean
        return self.lr * velocity, (velocity,)


@dataclass(frozen=True, kw_only=True)
class Adaptive(AveragingRule):
    """Base of the adaptive server optimisers (Reddi et al., ICLR 2021, Algorithm 2).

    With the mean update d: m <- beta1 m + (1 - beta1) d, v as the optimiser says, and the model
    moves by lr m / (sqrt(v) + tau). As in the paper, no bias is corrected.
    """

    lr: float = 0.1  #: eta, the learning rate of the server
    beta1: float = 0.9  #: decay rate of the mean update, in [0, 1)
    tau: float = 1e-3  #: added to the divisor; smaller values adapt more
    initial: Literal["zero", "tau"] = "zero"  #: v before the first step: 0, or tau squared

    def __post_init__(self) -> None:
        check(self.lr > 0, "lr", self.lr, "more than 0")
        check(0 <= self.beta1 < 1, "beta1", self.beta1, "in [0, 1)")
        check(self.tau > 0, "tau", self.tau, "more than 0")

    @abstractmethod
    def second(self, square: Tensor, v: Tensor) -> Tensor:
        """The next v, from the squared mean update and the last v."""

    def start(self, mean: Tensor) -> Moments:
        v = self.tau**2 if self.initial == "tau" else 0.0
        return torch.zeros_like(mean), torch.full_like(mean, v)

    def step(self, mean: Tensor, moments: Moments) -> tuple[Tensor, Moments]:
        m = self.beta1 * moments[0] + (1 - self.beta1) * mean
        v = self.second(mean * mean, moments[1])
        return self.lr * m / (v.sqrt() + self.tau), (m, v)


@dataclass(frozen=True, kw_only=True)
class FedAdagrad(Adaptive):
    """Adagrad at the server: v <- v + d^2; without momentum, unless `beta1` is given.

    >>> umbel.FedAvg(averaging=umbel.Averaging(rule=umbel.FedAdagrad(lr=0.03))).averaging.rule.lr
    0.03

    See Reddi et al., ICLR 2021, Algorithm 2: with the mean update d, m <- beta1 m + (1 - beta1) d,
    and the model moves by lr m / (sqrt(v) + tau).
    """

    beta1: float = 0.0  #: decay rate of the mean update, in [0, 1)

    def second(self, square: Tensor, v: Tensor) -> Tensor:
        return v + square


@dataclass(frozen=True, kw_only=True)
class _Decaying(Adaptive):
    beta2: float = 0.99  #: decay rate of the mean squared update, in [0, 1)

    def __post_init__(self) -> None:
        super().__post_init__()
        check(0 <= self.beta2 < 1, "beta2", self.beta2, "in [0, 1)")


@dataclass(frozen=True, kw_only=True)
class FedAdam(_Decaying):
    """Adam at the server: v <- beta2 v + (1 - beta2) d^2, and otherwise as `FedAdagrad`.

    As in the paper, no bias is corrected.
    """

    def second(self, square: Tensor, v: Tensor) -> Tensor:
        return self.beta2 * v + (1 - self.beta2) * square


@dataclass(frozen=True, kw_only=True)
class FedYogi(_Decaying):
    """Yogi at the server: v <- v - (1 - beta2) d^2 sign(v - d^2), and otherwise as `FedAdam`.

    After a long step, v shrinks more slowly than Adam's.
    """

    def second(self, square: Tensor, v: Tensor) -> Tensor:
        return v - (1 - self.beta2) * square * (v - square).sign()
