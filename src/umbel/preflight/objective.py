"""Checks that an objective accepts a network's outputs, and judges each example by itself.

Errors that the user's own objective raises are reported as the objective's, not the network's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from umbel.checks import UsageError, check
from umbel.client.batches import SLICE, Batch
from umbel.client.constants import same
from umbel.client.metrics import Predictions, measured, predictions
from umbel.client.net import Net
from umbel.client.objectives import Objective
from umbel.client.seeding import drawing_from
from umbel.data.federation import Federation
from umbel.preflight.sample import SOME_EXAMPLES, sample
from umbel.preflight.torch_errors import in_a_line
from umbel.summary import counted

KINDS = {"losses": "a loss", "correct": "a metric"}
"""The functions of an objective that are tried, with words for each."""


def check_objective(objective: Objective, outputs: Tensor, y: Tensor, scaling: str) -> None:
    """Check for one value for each example, which depends on that example alone; no loss is NaN.

    `scaling` is the part of the message about large inputs. Raises `UsageError`.
    """
    for name in KINDS:
        values = values_of(objective, name, outputs, y)
        pairs = zip(torch.split(outputs, 1), torch.split(y, 1), strict=True)
        alone = torch.cat([values_of(objective, name, *pair) for pair in pairs])
        _check_numbers(name, values, outputs, y, scaling)
        kind = values.dtype if values.is_floating_point() else torch.float64
        rtol = max(1e-3, 8 * torch.finfo(kind).eps)  # half precision rounds more than 1e-3
        equal = torch.allclose(values.double(), alone.double(), rtol, atol=1e-6, equal_nan=True)
        if not equal:
            raise UsageError(
                f"objective.{name}: the value of an example depends on the others"
                + _why(name, outputs, y)
            )


def check_accuracy(objective: Objective, outputs: Tensor, y: Tensor) -> None:
    """Check that the user's own objective gives an accuracy in [0, 1], as the server requires.

    The outputs are the untrained network's: others may be no outputs of it, as where it ends in a
    sigmoid.
    """
    values = values_of(objective, "correct", outputs, y).double()
    outside = values[(values < -1e-6) | (values > 1 + 1e-6)]
    if len(outside):
        expected = "a number in [0, 1], as accuracy is: clip or rescale it"
        check(False, "objective.correct", round(float(outside[0]), 4), expected)


def values_of(objective: Objective, name: str, outputs: Tensor, y: Tensor) -> Tensor:
    """Compute `losses` or `correct`: (B,). Raises `UsageError` that names the failing one."""
    given = outputs.clone(), y.clone()
    try:
        values = getattr(objective, name)(*given)
    except UsageError:
        raise
    except Exception as error:
        said = in_a_line(error, named=True)
        raise UsageError(f"objective.{name} raised {said} for {_shapes(outputs, y)}") from error
    shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
    expected = f"one value an example: {(len(y),)} for {counted(len(y), 'example')}"
    check(shape == (len(y),), f"objective.{name}", shape, expected)
    _check_kind(name, values.dtype)
    _check_unchanged(name, given, (outputs, y))
    found: Tensor = values
    return found


def _check_kind(name: str, kind: torch.dtype) -> None:
    """Refuse numbers that nothing can be trained by; a metric may count, or say true or false."""
    if name == "losses":
        expected = "a type of real floating-point numbers: others have no gradient to train by"
        check(kind.is_floating_point, "objective.losses", kind, expected)
    check(not kind.is_complex, f"objective.{name}", kind, "a type of real numbers")


def _check_unchanged(name: str, given: Sequence[Tensor], before: Sequence[Tensor]) -> None:
    """Refuse a function that writes in outputs or y, which others compute with after it."""
    for what, now, was in zip(("outputs", "y"), given, before, strict=True):
        if not same(now, was):
            raise UsageError(
                f"objective.{name} writes in {what}, with which metrics compute after it: let it "
                f"compute with a copy, as by {what} - 1 in place of {what}.sub_(1)"
            )


def _check_numbers(name: str, values: Tensor, outputs: Tensor, y: Tensor, scaling: str) -> None:
    """Refuse losses that are nan for finite outputs; metrics may be nan if undefined."""
    if name == "losses" and values.isnan().any() and outputs.isfinite().all():
        raise UsageError(
            f"objective.losses: nan for {_shapes(outputs, y)}, before any training: look for a "
            f"division by 0, or the logarithm or root of a negative number, in it{scaling}"
        )


def _why(name: str, outputs: Tensor, y: Tensor) -> str:
    """The likely cause of a wrong value: broadcasting of shapes, or use of the whole batch."""
    if outputs.shape != y.shape and _without_ones(outputs) == _without_ones(y):
        return f": {_shapes(outputs, y)}, every output with every y; give both one shape"
    return (
        f", or on chance: {KINDS[name]} that compares the examples of a batch, divides by their "
        "number or draws at random can't be used"
    )


def _without_ones(values: Tensor) -> list[int]:
    return [size for size in values.shape[1:] if size != 1]


def _shapes(outputs: Tensor, y: Tensor) -> str:
    return f"outputs of shape {tuple(outputs.shape)} and y of shape {tuple(y.shape)}"


def check_own_metrics(net: Net, federation: Federation, names: Sequence[str]) -> None:
    """Raise `UsageError`, as the first evaluation would, if one of the user's metrics always fails.

    A metric may fail for some examples, or for the equal outputs of an untrained model, but work
    for a trained one. It counts as always failing if it fails with the same message for everything
    that is tried.
    """
    own = [name for name in names if ":" in name]
    if not own:
        return
    with torch.no_grad(), drawing_from(seed=0):
        tried = list(_predicted(net, federation))
        for name in own:
            first, *others = (_failure(name, one) for one in tried)
            if first is not None and all(other == first for other in others):
                raise UsageError(first)


def _failure(name: str, found: Predictions) -> str | None:
    """Return the reason to refuse a metric; None if it works."""
    try:
        measured([name], found)
    except UsageError as error:
        return str(error)
    return None


def _predicted(net: Net, federation: Federation) -> Iterator[Predictions]:
    """Predict examples of the largest client, and of all clients, by an untrained model.

    Each is there twice, with noise besides, as a last layer may begin with zeros.
    """
    split = federation.test if len(federation.test.x) else federation.train
    theta = net.new(seed=0)
    x, y = split.typed(int(split.sizes.argmax()), net.dtype)
    for batch in (Batch(x[:SLICE], y[:SLICE]), sample(net, federation, SOME_EXAMPLES)):
        outputs = net.outputs(theta, batch.x)
        for made in (outputs, outputs + torch.randn_like(outputs)):
            yield predictions(net.objective, made, batch.y)
