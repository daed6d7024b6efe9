"""Whether a network and a federation fit each other, found out before the first round."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from umbel.checks import UsageError, check
from umbel.client.batches import Batch
from umbel.client.net import Net
from umbel.client.objectives import BINARY, CLASSIFICATION
from umbel.client.work import Work
from umbel.data.federation import Federation

log = logging.getLogger(__name__)

ALONE = "Expected more than 1 value per channel when training"
"""What batch normalisation says of a mini-batch of one example."""


def check_fit(net: Net, federation: Federation) -> None:
    """Run the network on two examples, forward and back.

    Raises `UsageError` that says what to write where it does not take them, or where its outputs
    do not fit their y.
    """
    batch = sample(net, federation)
    with explained(batch.x):
        theta = net.new(seed=0)
        outputs = net.outputs(theta, batch.x)
        if net.objective is CLASSIFICATION and not batch.y.is_floating_point():
            _check_classes(outputs, batch.y, federation)
        if net.objective is BINARY:
            _check_answers(federation)
        _check_objective(net, outputs, batch.y)
        _check_constants(net.modules.moved_constants(batch.x))
        net.gradient(theta, batch)


def check_batches(net: Net, federation: Federation, settings: Any) -> None:
    """Raise `UsageError` where a client would train on a single example, and the network can't.

    `settings` are those of the method: the mini-batches are those of the works in them.
    """
    if not _needs_company(net, federation):
        return
    sizes = federation.train.sizes
    for work in works_in(settings):
        for size in np.unique(sizes[sizes > 0]):
            plan = work.plan(int(size), 0)
            if ((plan >= 0).sum(1) == 1).any():
                name = federation.names[int(np.flatnonzero(sizes == size)[0])]
                raise UsageError(
                    f"client {name}: its {size} examples leave a mini-batch of one, and batch "
                    "normalisation needs two: set drop_last = true or another batch_size in the "
                    "method's local training, or use group normalisation"
                )


def works_in(settings: Any) -> Iterator[Work]:
    """The works among the fields of a method, at any depth."""
    for field in fields(settings) if is_dataclass(settings) else ():
        value = getattr(settings, field.name)
        if isinstance(value, Work):
            yield value
        yield from works_in(value)


def advice(federation: Federation) -> str:
    """What to change where training diverges."""
    x = federation.train.x
    largest = max(abs(float(x.min())), abs(float(x.max()))) if x.is_floating_point() else 0.0
    scale = f"scale the inputs, which reach {largest:.3g}, to about 1" if largest > 10 else ""
    return " and ".join(filter(None, (scale, "lower the learning rate (algorithm.local.lr)")))


def sample(net: Net, federation: Federation, count: int = 2) -> Batch:
    """A few training examples of all clients, in the network's floating-point type."""
    split = federation.train
    rows = torch.linspace(0, len(split.x) - 1, count).long()
    x, y = (
        values.to(net.dtype) if values.is_floating_point() else values
        for values in (split.x[rows], split.y[rows])
    )
    return Batch(x, y)


@contextmanager
def explained(x: Tensor, whose: str = "") -> Iterator[None]:
    """Turn what torch says of a network and its inputs x into a sentence that says what to do."""
    try:
        yield
    except UsageError as error:
        raise UsageError(f"{whose}{error}") from error
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError) as error:
        said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise UsageError(f"{whose}{_sentence(said, x)}") from error


def _sentence(said: str, x: Tensor) -> str:
    shape, whole = tuple(x.shape[1:]), not x.is_floating_point()
    if ALONE in said:
        return (
            "a mini-batch of one example, and batch normalisation needs two: set drop_last = true "
            "or another batch_size in the method's local training"
        )
    if "index out of range in self" in said:
        return (
            f"x: an input is not a row of the network's embedding; those of a few examples go "
            f"from {int(x.min())} to {int(x.max())}: make num_embeddings larger"
        )
    if "indices" in said and "Long" in said and not whole:
        return (
            "x: inputs are floating-point numbers, and the network's embedding takes whole "
            f"numbers: give x as integers ({said})"
        )
    if whole and any(word in said for word in ("dtype", "scalar type", "Input type")):
        return (
            "x: inputs are whole numbers, and the network takes floating-point ones: give x as "
            f"floats, for example x.astype('float32') ({said})"
        )
    flat = "; begin it with nn.Flatten()" if "mat1 and mat2" in said and x.dim() > 2 else ""
    return f"the network does not take inputs of shape {shape}{flat} ({said})"


def _check_classes(outputs: Tensor, y: Tensor, federation: Federation) -> None:
    """Too few outputs can't be trained; more than enough are most likely a mistake."""
    if outputs.dim() != y.dim() + 1 or outputs.shape[2:] != y.shape[1:]:
        return  # the objective says more of these
    found, classes = outputs.shape[1], federation.num_classes or 0
    hint = "; or, for yes or no by one output, pass umbel.BINARY to Net" if found == 1 else ""
    check(
        found >= classes, "the network's outputs", found, f"one for each of {classes} classes{hint}"
    )
    if found > classes:
        log.warning("the network has %d outputs, and there are %d classes", found, classes)


def _check_answers(federation: Federation) -> None:
    for split in (federation.train, federation.test):
        fine = bool(((split.y == 0) | (split.y == 1)).all())
        check(fine, "y", "other than 0 and 1", "0 or 1 everywhere, as umbel.BINARY takes")


def _check_constants(moved: list[str]) -> None:
    if moved:
        raise UsageError(
            f"Net: training changes the buffer {moved[0]}, which is taken for a constant: write "
            f"Net(..., moving={moved}) so that each model has its own"
        )


def _check_objective(net: Net, outputs: Tensor, y: Tensor) -> None:
    found = net.objective.losses(outputs, y), net.objective.correct(outputs, y)
    for name, values in zip(("losses", "correct"), found, strict=True):
        shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
        expected = f"one value an example: {(len(y),)} for these {len(y)}"
        check(shape == (len(y),), f"objective.{name}", shape, expected)


def _needs_company(net: Net, federation: Federation) -> bool:
    """Whether training on a single example fails, as batch normalisation does."""
    batch = sample(net, federation, 1)
    try:
        net.gradient(net.new(seed=0), batch)
    except ValueError as error:
        return ALONE in str(error)
    return False
