"""Conversion of clients' examples to tensors, with checks that all have the same form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

import torch
from torch import Tensor

from umbel.checks import check
from umbel.data.conventions import Comparison, entries_of, warn_of_layout, warn_of_units
from umbel.data.dataframes import check_columns, check_rows, column_names, without_indexes
from umbel.data.given import pair
from umbel.data.splits import Chosen, Pair, set_apart
from umbel.data.values import AS_FLOATS, inputs, targets
from umbel.seeds import Stream, generator

MIXED = "y must be whole numbers (classes) for all clients, or floating-point numbers for all"


ChosenPair: TypeAlias = tuple[Chosen, Tensor]
"""One client's inputs, not yet copied, and its targets (n, ...)."""


def examples_of(
    given: Mapping[str, Sequence[Any]], names: tuple[str, ...]
) -> dict[str, list[ChosenPair]]:
    """The examples of each split, client by client, as tensors of one type.

    Raises `UsageError` for inputs that can't mean the same at all clients, and warns of those that
    probably do not.
    """
    pairs = {
        what: [pair(entry, name) for entry, name in zip(entries, names, strict=True)]
        for what, entries in given.items()
    }
    every, whose = [x for each in pairs.values() for x, _ in each], names * len(pairs)
    check_columns(every, whose)
    rest = iter(without_indexes(every, whose))
    pairs = {what: [(next(rest), y) for _, y in each] for what, each in pairs.items()}
    read = {
        what: [_tensors(x, y, name) for (x, y), name in zip(each, names, strict=True)]
        for what, each in pairs.items()
    }
    splits = {what: [pair for pair, _ in each] for what, each in read.items()}
    check_alike([pair for each in splits.values() for pair in each], names * len(splits))
    stored = {what: [kind for _, kind in each] for what, each in read.items()}
    # Refuse inputs that can't mean the same at all clients.
    x, y = ({what: [pair[n] for pair in each] for what, each in splits.items()} for n in (0, 1))
    warned = Comparison(entries_of(x, stored, names)).check()
    if y["train"][0].is_floating_point():
        floats = {what: ["table"] * len(each) for what, each in y.items()}
        Comparison(entries_of(y, floats, names), what="y").warn()
    filled = {n: x for n, (x, _) in zip(names, splits["train"], strict=True) if len(x)}
    if filled:
        warn_of_layout(list(filled.values()), list(filled))
    if filled and not warned:
        columns = column_names(pairs["train"][0][0])
        warn_of_units(list(filled.values()), list(filled), columns)
    return of_one_type(splits)


def with_all_splits(
    splits: Mapping[str, list[ChosenPair]],
    names: Sequence[str],
    fractions: Mapping[str, float],
    seed: int,
) -> dict[str, list[ChosenPair]]:
    """The same, with missing test and validation splits set apart from the training examples.

    Validation gets a fraction of the remaining training examples; with 0 there is no validation
    split.
    """
    made = dict(splits)
    for what, stream in (("test", Stream.DATA), ("validation", Stream.VALIDATION)):
        if what not in made and (what == "test" or fractions[what]):
            setting = f"{what}_fraction"
            rngs = [generator(seed, stream, client) for client in range(len(names))]
            made["train"], made[what] = set_apart(
                made["train"], names, fractions[what], setting, rngs
            )
    return made


def of_one_type(splits: Mapping[str, list[Pair]]) -> dict[str, list[ChosenPair]]:
    """The same; whole-number inputs become floats unless all splits have whole numbers."""
    pairs = [pair for each in splits.values() for pair in each]
    types = [_type(x) for x, _ in pairs if len(x)] or [_type(x) for x, _ in pairs]
    common = reduce(torch.promote_types, types)
    if common.is_floating_point and not all(kind.is_floating_point for kind in types):
        # Half precision, in which others have their inputs, does not hold whole numbers beyond 256.
        common = torch.promote_types(common, torch.float32)

    def cast(x: Tensor) -> Chosen:
        kind = _type(x)
        alike = kind.is_floating_point == common.is_floating_point
        return Chosen.all_of(x, kind if alike else common)

    return {what: [(cast(x), y) for x, y in each] for what, each in splits.items()}


def _type(x: Tensor) -> torch.dtype:
    return torch.float32 if x.dtype in AS_FLOATS else x.dtype


def check_alike(shards: Sequence[Pair], names: Sequence[str]) -> None:
    """Raise `UsageError` unless examples have the shapes and kinds of the first client's.

    A client without examples, which has no shape, is skipped.
    """

    def kind(shard: Pair) -> str:
        x, y = shard
        what = "numbers" if y.is_floating_point() else "labels"
        return f"inputs of shape {tuple(x.shape[1:])} with {what} of shape {tuple(y.shape[1:])}"

    first = next((shard for shard in shards if len(shard[0])), shards[0])
    wanted, numbers = kind(first), first[1].is_floating_point()
    for shard, name in zip(shards, names, strict=True):
        if len(shard[0]):
            alike = shard[1].is_floating_point() == numbers
            hint = "if these are sequences, pad all clients' to one length" if alike else MIXED
            shapes = shard[0].shape[1:], first[0].shape[1:]
            if alike and shapes[0] != shapes[1] and sorted(shapes[0]) == sorted(shapes[1]):
                hint = "for the same order of axes, np.moveaxis(x, -1, 1) puts channels first"
            check(
                kind(shard) == wanted,
                f"client {name}",
                kind(shard),
                f"{wanted}, as others have; {hint}",
            )


def _tensors(x: object, y: object, name: str) -> tuple[Pair, str]:
    check_rows(x, y, name)
    converted, stored = inputs(x, name)
    tensors = converted, targets(y, name)
    shapes = [tuple(tensor.shape) for tensor in tensors]
    same = all(shapes) and shapes[0][0] == shapes[1][0]
    said = f"{shapes[0]} inputs and {shapes[1]} targets"
    check(same, f"client {name}", said, "as many inputs as targets")
    values = tensors[0].numel() > 0 and tensors[1].numel() > 0
    check(values or not shapes[0][0], f"client {name}", said, "a number or more for each example")
    return tensors, stored
