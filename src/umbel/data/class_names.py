"""Comparison of the names that datasets of torch and Hugging Face give their classes."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from torch.utils.data import ConcatDataset, Subset

from umbel.checks import UsageError
from umbel.summary import few

log = logging.getLogger(__name__)


def check_class_names(clients: Iterable[tuple[str, Any, Sequence[Any]]], column: str) -> None:
    """Raise `UsageError` if a class has different numbers in two datasets.

    `clients` are (client, dataset, labels), for each split; `column` is the name of y in datasets
    of Hugging Face. One number for two classes is a warning: clients may have different tasks.
    """
    found: dict[tuple[str, ...], str] = {}  # the classes of each kind of dataset -> a client
    for client, whole, all_labels in clients:
        for dataset, labels in _parts(whole, all_labels):
            classes = _classes(dataset, column)
            # Other labels are not numbers of these classes, which may be just those that occur.
            if all(_is_one_of(len(classes), label) for label in labels):
                found.setdefault(classes, client)
    differing = ""
    for (one, client), (other, rival) in combinations(found.items(), 2):
        said = f"client {client} has {few(one)}, and client {rival} {few(other)}"
        moved = [name for name in one if name in other and one.index(name) != other.index(name)]
        if moved:
            raise UsageError(
                f"classes: {said}, so that {moved[0]!r} is label {one.index(moved[0])} and "
                f"{other.index(moved[0])}: number them alike, as by a target_transform or by "
                "align_labels_with_mapping"
            )
        if any(a != b for a, b in zip(one, other, strict=False)):
            differing = differing or said
    if differing:
        log.warning("classes: %s: do equal labels mean the same?", differing)


def _parts(dataset: Any, labels: Sequence[Any]) -> Iterator[tuple[Any, Sequence[Any]]]:
    """The datasets that a dataset was made of, with the labels of the examples from each."""
    if isinstance(dataset, Subset):
        yield from _parts(dataset.dataset, labels)
    elif isinstance(dataset, ConcatDataset):
        ends = dataset.cumulative_sizes
        for part, first, end in zip(dataset.datasets, [0, *ends], ends, strict=False):
            yield from _parts(part, labels[first:end])
    else:
        yield dataset, labels


def _classes(dataset: Any, column: str) -> tuple[str, ...]:
    """The names of labels 0, 1, ...; empty if the dataset does not tell."""
    features = getattr(dataset, "features", None)
    if isinstance(features, dict):
        names = getattr(features.get(column), "names", None)
    else:
        names = getattr(dataset, "classes", None)
        if getattr(dataset, "target_transform", None) is not None:
            names = None  # they belong to the numbers before it
    fine = isinstance(names, tuple | list) and all(isinstance(name, str) for name in names)
    return tuple(names) if fine and names else ()


def _is_one_of(count: int, label: Any) -> bool:
    return hasattr(label, "__index__") and np.ndim(label) == 0 and 0 <= label < count
