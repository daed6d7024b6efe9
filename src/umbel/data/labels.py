"""Checks of class labels."""

from __future__ import annotations

import logging
from collections.abc import Sequence, Sized

from torch import Tensor

from umbel.checks import UsageError, check
from umbel.client.batches import IGNORED
from umbel.settings import argument

log = logging.getLogger(__name__)

MANY = 10_000
"""A label of at least this, and at least the number of examples, is probably not a class."""


def fitting_classes(given: int | None) -> int | None:
    """The number of classes that the user gives, if any. Raises `UsageError` if it is invalid."""
    fitting: int | None = argument("num_classes", given, int | None)
    check(fitting is None or fitting >= 1, "num_classes", given, "1 or more")
    return fitting


def are_indicators(y: Tensor) -> bool:
    """Whether each row of y (n, L) has a single 1 among zeros, so that it may be one-hot."""
    if y.dim() != 2 or y.shape[1] < 2:
        return False
    return bool(((y == 0) | (y == 1)).all()) and bool((y.sum(1) == 1).all())


def check_labels(
    shards: Sequence[tuple[object, Tensor]], names: Sequence[str], num_classes: int | None
) -> int:
    """The number of classes. Labels may be `IGNORED` if examples have many labels."""
    counted = [y[y != IGNORED] if y.dim() > 1 else y for _, y in shards]
    filled = [y for y in counted if len(y)]
    if not filled:
        raise UsageError(f"y: every label is {IGNORED}, so that none counts")
    if num_classes is None:
        _check_not_numbers(filled)
        _warn_without_zero(filled)
    classes = max(int(y.max()) for y in filled) + 1 if num_classes is None else num_classes
    for y, name in zip(counted, names, strict=True):
        for label in map(int, y.aminmax()) if len(y) else ():
            if not 0 <= label < classes:
                side = "below 0" if label < 0 else f"above {classes - 1}"
                expected = f"in 0 to {classes - 1}; {_advice(y, filled)}"
                raise UsageError(f"client {name}: a label is {side}, and not {expected}")
    return classes


def check_trainable(shards: Sequence[tuple[Sized, Tensor]], names: Sequence[str]) -> None:
    """Raise `UsageError` if a client has no training examples, or no label that counts."""
    for (x, y), name in zip(shards, names, strict=True):
        check(len(x) > 0, f"client {name}", len(x), "a positive number of training examples")
        some = y.is_floating_point() or y.dim() < 2 or bool((y != IGNORED).any())
        check(some, f"client {name}: training labels", f"all {IGNORED}", "a label that counts")


def _advice(y: Tensor, everyones: Sequence[Tensor]) -> str:
    """Advice for a client's labels y if some are out of range."""
    if y.dim() == 1 and int(y.min()) == IGNORED:
        return "leave examples without a label out"
    signs = set().union(*(labels.flatten().tolist() for labels in everyones)) == {-1, 1}
    return "number the classes from 0" + (", as by (y > 0).astype(int)" if signs else "")


def _warn_without_zero(labels: Sequence[Tensor]) -> None:
    """Warn if labels seem to start at 1, since models then have an output too many."""
    smallest = min(int(y.min()) for y in labels)
    largest = max(int(y.max()) for y in labels)
    if smallest == 1:
        log.warning(
            "no example has label 0, the first label: labels from 1 to %d are taken for %d "
            "classes; number them from 0, or set num_classes",
            *(largest, largest + 1),
        )


def _check_not_numbers(labels: Sequence[Tensor]) -> None:
    """Raise `UsageError` for labels far above the number of examples, as outputs are per label."""
    largest, count = max(int(y.max()) for y in labels), sum(map(len, labels))
    most = max(MANY, count)
    if largest >= most:  # it may be an amount of somebody's, so it is not shown
        raise UsageError(
            f"y: a label is {most:,} or more, among {count:,} examples: number the classes from 0 "
            "without gaps, or set num_classes; amounts are given as floating-point numbers"
        )
