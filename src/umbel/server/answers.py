"""What comes back from clients, named: letters as in `umbel.flow`."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from umbel.reduction import Sums
from umbel.summary import in_short


@dataclass(frozen=True)
class Trained:
    """What local training gave."""

    clients: Tensor  # (N,)
    update: Tensor  # (N, P) trained minus received
    num_examples: Tensor  # (N,)

    __repr__ = in_short


@dataclass(frozen=True)
class TrainedBest(Trained):
    chosen: Tensor  # (N,) the model that the client picked and trained
    losses: Tensor  # (N, K) training loss of every model before training

    __repr__ = in_short


@dataclass(frozen=True)
class Summed:
    """What is left of local training where only sums matter."""

    clients: Tensor  # (N,)
    sums: Sums  # of the updates, in each cluster

    __repr__ = in_short


@dataclass(frozen=True)
class SummedBest(Summed):
    chosen: Tensor  # (N,) the model that the client picked and trained
    losses: Tensor  # (N, K) training loss of every model before training

    __repr__ = in_short


@dataclass(frozen=True)
class TrainedWithGradient(Trained):
    gradient: Tensor  # (N, P) of all training data, at the received model

    __repr__ = in_short


@dataclass(frozen=True)
class TrainedJointly(Trained):
    chosen: Tensor  # (N,)
    scores: Tensor  # (N, K) of every model, the highest is best

    __repr__ = in_short


@dataclass(frozen=True)
class Scores:
    clients: Tensor  # (N,)
    scores: Tensor  # (N, K) the highest is best

    __repr__ = in_short


@dataclass(frozen=True)
class Features:
    clients: Tensor  # (N,)
    feature: Tensor  # (N, J)

    __repr__ = in_short


@dataclass(frozen=True)
class TrainedWithMemory(Trained):
    memory: Tensor  # (N, ...) what each client keeps

    __repr__ = in_short


@dataclass(frozen=True)
class Memories:
    clients: Tensor  # (N,)
    memory: Tensor  # (N, ...)

    __repr__ = in_short


@dataclass(frozen=True)
class Losses:
    clients: Tensor  # (N,)
    losses: Tensor  # (N, K)

    __repr__ = in_short


@dataclass(frozen=True)
class Gradients:
    clients: Tensor  # (N,)
    gradient: Tensor  # (N, P)
    num_examples: Tensor  # (N,)

    __repr__ = in_short


@dataclass(frozen=True)
class BestGradients(Gradients):
    chosen: Tensor  # (N,) the model that the gradient belongs to
    losses: Tensor  # (N, K)

    __repr__ = in_short


@dataclass(frozen=True)
class Principal:
    clients: Tensor  # (N,)
    vectors: Tensor  # (N, D, Q) double; a column is of length 1, or zero where there is none

    __repr__ = in_short


@dataclass(frozen=True)
class Evaluated:
    clients: Tensor  # (N,)
    loss: Tensor  # (N,) mean test loss, NaN for a client without test examples
    accuracy: Tensor  # (N,)
    num_examples: Tensor  # (N,) test examples

    __repr__ = in_short
