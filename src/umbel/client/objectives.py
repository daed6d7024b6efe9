"""Objectives: the losses that models are trained for, and the accuracies they are judged by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import torch
from torch import Tensor
from torch.func import debug_unwrap
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, logsigmoid

from umbel.checks import UsageError, check
from umbel.client.batches import IGNORED, wide

FEW, MANY = 16, 128
"""With fewer classes than this, and at least this many examples, a softmax on a CPU takes several
times as long with classes last in memory as with examples last, copies included: the CPU's vector
registers hold about this many numbers."""


def weighted_mean(outputs: Tensor, weights: Tensor) -> Tensor:
    """Outputs (K, B, ...) of models and their weights (K,) -> (B, ...)."""
    return (_column(weights, outputs) * outputs).sum(0)


@dataclass(frozen=True)
class Objective:
    """An objective: the loss that models are trained for, and the accuracy they are judged by.

    B is the number of examples in a batch. An objective of your own, such as the absolute error:

    >>> import torch
    >>> error = lambda outputs, y: (outputs.view_as(y) - y).abs()
    >>> absolute = umbel.Objective(losses=error, correct=lambda outputs, y: error(outputs, y) < 0.1)
    >>> net = umbel.Net(lambda: torch.nn.Linear(5, 1), absolute)

    `mixed` combines the outputs of K models (K, B, ...) with weights (K,) into the outputs of their
    mixture; `losses` and `correct` treat these like the outputs of one model.
    """

    losses: Callable[[Tensor, Tensor], Tensor]  #: outputs (B, ...) and y (B, ...) -> losses (B,)
    correct: Callable[[Tensor, Tensor], Tensor]  #: outputs and y -> (B,), 1 if the model is right
    #: outputs (K, B, ...) and weights (K,) -> outputs (B, ...) of the mixture
    mixed: Callable[[Tensor, Tensor], Tensor] = weighted_mean

    def __post_init__(self) -> None:
        for name, function in vars(self).items():
            check(callable(function), f"Objective: {name}", function, "a function")


def _cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    _check_logits(outputs, y)
    flat = outputs.dim() == 2 and outputs.shape[1] < FEW and len(outputs) >= MANY
    if flat and not outputs.is_cuda:  # as one example with labels at many positions
        return _each(_surprise(outputs.t()[None], y[None])[0], y != IGNORED)
    return _each(_surprise(outputs, y), y != IGNORED)


def _surprise(outputs: Tensor, y: Tensor) -> Tensor:
    """The cross-entropy (B, ...) of each label; 0 of those that do not count."""
    if debug_unwrap(outputs).dim() == outputs.dim():  # not many models at once
        return cross_entropy(outputs, y, reduction="none", ignore_index=IGNORED)
    # The same numbers; under `vmap` PyTorch's function first loads sympy for a second.
    counts = y != IGNORED
    logs = outputs.log_softmax(1).gather(1, torch.where(counts, y, 0).unsqueeze(1)).squeeze(1)
    return torch.where(counts, -logs, 0.0)


def _right_class(outputs: Tensor, y: Tensor) -> Tensor:
    return _each((outputs.argmax(1) == y).to(outputs.dtype), y != IGNORED)


def _mixed_classes(outputs: Tensor, weights: Tensor) -> Tensor:
    """Logarithms of the mixed probabilities: logits again, whose cross-entropy is
    -log sum_k w_k p_k(y)."""
    return (_column(weights.log(), outputs) + outputs.log_softmax(2)).logsumexp(0)


def _squared_error(outputs: Tensor, y: Tensor) -> Tensor:
    if not y.is_floating_point():
        raise UsageError(
            "y: whole numbers are class labels, but this network is trained for regression: "
            "give y as floating-point numbers, or pass umbel.CLASSIFICATION to Net (in a file, "
            'objective = "classification")'
        )
    return _each((alike(outputs, y) - y) ** 2)


def _unknown(outputs: Tensor, y: Tensor) -> Tensor:  # noqa: ARG001
    return outputs.new_full((len(outputs),), torch.nan)


def _binary_cross_entropy(outputs: Tensor, y: Tensor) -> Tensor:
    logits = alike(outputs, y)
    return _each(binary_cross_entropy_with_logits(logits, y.to(logits.dtype), reduction="none"))


def _right_answers(outputs: Tensor, y: Tensor) -> Tensor:
    logits = alike(outputs, y)
    return _each(((logits > 0) == (y > 0.5)).to(logits.dtype))


def _mixed_answers(outputs: Tensor, weights: Tensor) -> Tensor:
    """Log-odds of the mixed probabilities."""
    logs = _column(weights.log(), outputs)
    yes, no = ((logs + logsigmoid(side)).logsumexp(0) for side in (outputs, -outputs))
    return yes - no


def alike(outputs: Tensor, y: Tensor) -> Tensor:
    """Return outputs in the shape of y if the shapes differ only by dimensions of size 1.

    Raises `UsageError` for other differences: broadcasting would compare every output with every
    target.
    """
    if outputs.shape == y.shape:
        return outputs
    if _essential(outputs) != _essential(y):
        raise UsageError(
            f"the network's outputs have shape {_shape(outputs)} and the targets y {_shape(y)}: "
            "they must be the same"
        )
    return outputs.reshape(y.shape)


def _check_logits(outputs: Tensor, y: Tensor) -> None:
    """Raise `UsageError` unless outputs (B, C, ...) are logits for labels (B, ...)."""
    if y.is_floating_point():
        raise UsageError(
            "y: floating-point numbers are regression targets, but this network is trained for "
            "classification: give labels as whole numbers, or pass umbel.REGRESSION (or "
            'umbel.BINARY) to Net (in a file, objective = "regression" or "binary")'
        )
    if outputs.dim() == y.dim() + 1 and outputs.shape[2:] == y.shape[1:]:
        return
    shapes = f"the network's outputs have shape {_shape(outputs)} and the labels y {_shape(y)}"
    if outputs.dim() == y.dim() + 1 and outputs.shape[1:-1] == y.shape[1:]:
        raise UsageError(
            f"{shapes}: the classes must be dimension 1, before the others: end the network's "
            "forward by outputs.movedim(-1, 1)"
        )
    if _essential(outputs) == _essential(y):
        raise UsageError(
            f"{shapes}, one output for each label: classification needs one for each class; for "
            "yes or no pass umbel.BINARY to Net"
        )
    expected = ("B", "C", *map(str, y.shape[1:]))
    several = outputs.dim() == y.dim() == 2
    binary = 'pass umbel.BINARY to Net (in a file, objective = "binary")'
    raise UsageError(
        f"{shapes}: outputs must be ({', '.join(expected)}), C the number of classes"
        + (f"; where the labels are {y.shape[1]} answers of yes or no, {binary}" if several else "")
    )


def _essential(values: Tensor) -> tuple[int, ...]:
    """The shape of a batch (B, ...) without dimensions of size 1 after the first."""
    return (*values.shape[:1], *(size for size in values.shape[1:] if size != 1))


def _shape(values: Tensor) -> str:
    """The shape of a batch, for messages."""
    sizes = ["B", *map(str, values.shape[1:])][: values.dim()]
    return f"({', '.join(sizes)})" if len(sizes) != 1 else "(B,)"


def _column(weights: Tensor, outputs: Tensor) -> Tensor:
    """Weights (K,) in a form that multiplies outputs (K, B, ...)."""
    return weights.reshape(-1, *[1] * (outputs.dim() - 1))


def _each(values: Tensor, counts: Tensor | None = None) -> Tensor:
    """One value per example: the mean over its values, or over those of them that count.

    It is 0 for an example in which no value counts.
    """
    if values.dim() == 1:
        return values
    if counts is None:
        return values.flatten(1).mean(1)
    kept = counts.flatten(1)
    sums = values.flatten(1).where(kept, 0).sum(1, dtype=wide(values.dtype))
    return (sums / kept.sum(1).clamp(min=1)).to(values.dtype)


CLASSIFICATION = Objective(_cross_entropy, _right_class, _mixed_classes)
"""Cross-entropy of logits (B, C, ...) against labels (B, ...), scored by accuracy.

C is the number of classes. If examples have many labels, labels of -100 do not count, and a mean
over examples is a mean over the labels that count, as in `torch.nn.CrossEntropyLoss`. A mixture of
models mixes their class probabilities."""

REGRESSION = Objective(_squared_error, _unknown)
"""Mean squared error of outputs and targets (B, ...); regression has no accuracy."""

BINARY = Objective(_binary_cross_entropy, _right_answers, _mixed_answers)
"""Binary cross-entropy of logits (B, ...) against answers 0 and 1, scored by accuracy.

There is one output for yes or no, or one for each of several labels. A mixture of models mixes
their probabilities."""

ObjectiveName: TypeAlias = Literal["auto", "classification", "regression", "binary"]

OBJECTIVES: Mapping[str, Objective] = {
    "classification": CLASSIFICATION,
    "regression": REGRESSION,
    "binary": BINARY,
}
"""Objectives by the names that experiments use."""
