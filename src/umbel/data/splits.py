"""The examples of all clients in one tensor, and the random choice of test examples."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import Any, TypeAlias, TypeVar
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umbel.checks import check, check_memory
from umbel.seeds import Stream, generator
from umbel.summary import in_short

Pair: TypeAlias = tuple[Tensor, Tensor]
"""One client's inputs (n, ...) and targets (n, ...)."""


@dataclass(frozen=True)
class Chosen:
    """Some of a client's inputs, in a type: they are copied only when clients are joined."""

    values: Tensor  # (n, ...)
    dtype: torch.dtype
    rows: NDArray[np.int64]

    __repr__ = in_short

    @classmethod
    def all_of(cls, values: Tensor, dtype: torch.dtype) -> Chosen:
        """All inputs of a client."""
        return cls(values, dtype, np.arange(len(values)))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, rows: NDArray[np.int64]) -> Chosen:
        return Chosen(self.values, self.dtype, self.rows[rows])

    @property
    def nbytes(self) -> int:
        """The size of the copy in bytes."""
        return len(self) * self.values[:1].numel() * self.dtype.itemsize


@dataclass(frozen=True)
class Split:
    """The examples of all clients in one tensor, in the order of the clients."""

    x: Tensor  # (total, ...)
    y: Tensor  # (total, ...)
    offsets: NDArray[np.int64]  # (M + 1,) client c holds rows offsets[c] to offsets[c + 1] - 1
    #: (M, T) of these, one step of time after another; None: examples have no time
    steps: NDArray[np.int64] | None = field(default=None, repr=False)

    __repr__ = in_short

    @property
    def sizes(self) -> NDArray[np.int64]:
        """(M,) number of examples of each client."""
        return np.diff(self.offsets)

    def of(self, client: int) -> Pair:
        """One client's examples, as views."""
        rows = slice(int(self.offsets[client]), int(self.offsets[client + 1]))
        return self.x[rows], self.y[rows]

    def typed(self, client: int, dtype: torch.dtype) -> Pair:
        """One client's examples, with floats in a network's type, as engines use them."""
        x, y = self.of(client)
        return typed(x, dtype), typed(y, dtype)

    def without_examples(self) -> Split:
        """The same clients without any examples."""
        return Split(self.x[:0], self.y[:0], np.zeros_like(self.offsets))

    def counts(self, clients: NDArray[np.int64], shares: NDArray[np.float64]) -> NDArray[np.int64]:
        """(N, T) number of examples of each step if these shares (N, T) are used.

        Of a step with a positive share it is one at least; steps beyond the last have none.
        """
        assert self.steps is not None
        steps, used = self.steps[clients], np.zeros((len(clients), self.steps.shape[1]))
        width = min(used.shape[1], shares.shape[1])
        used[:, :width] = shares[:, :width]
        # Not cut at a half, where the last bit of a power would decide.
        rounded = np.floor(used * steps + 0.5001).astype(np.int64).clip(min=used > 0)
        counts: NDArray[np.int64] = np.minimum(rounded, steps)
        return counts

    def during(self, clients: NDArray[np.int64], shares: NDArray[np.float64]) -> Split:
        """The first examples of each step, in these shares (N, T), and none of other clients."""
        assert self.steps is not None
        order = np.argsort(clients)
        clients, shares = clients[order], shares[order]
        counts, before = self.counts(clients, shares), self.steps[clients].cumsum(axis=1)
        starts = (self.offsets[clients][:, None] + before - self.steps[clients]).ravel()
        each = counts.ravel()
        # (n,) rows: those of the ranges from each of `starts` on, one after another.
        rows = np.repeat(starts - (each.cumsum() - each), each) + np.arange(each.sum())
        sizes = np.zeros_like(self.sizes)
        sizes[clients] = counts.sum(axis=1)
        taken = torch.from_numpy(rows).to(self.x.device)
        return Split(self.x[taken], self.y[taken], np.concatenate([[0], sizes.cumsum()]))

    def pick(self, clients: Sequence[int]) -> Split:
        """The examples of only these clients, in this order."""
        steps = None if self.steps is None else self.steps[list(clients)]
        return replace(joined([self.of(client) for client in clients]), steps=steps)


def typed(values: Tensor, dtype: torch.dtype) -> Tensor:
    """Values in a network's floating-point type; integers are not changed."""
    return values.to(dtype) if values.is_floating_point() else values


def joined(shards: Sequence[tuple[Tensor | Chosen, Tensor]]) -> Split:
    """One split with copies of the examples of several clients."""
    check_memory(sum(x.nbytes + y.nbytes for x, y in shards), "examples of all clients, joined")
    filled = [shard for shard in shards if len(shard[0])] or [shards[0]]
    sizes = [len(x) for x, _ in shards]
    offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    return Split(_in_one([x for x, _ in filled]), torch.cat([y for _, y in filled]), offsets)


def _in_one(parts: Sequence[Tensor | Chosen]) -> Tensor:
    """All inputs in one tensor; those that were chosen are copied straight to their places."""
    chosen = [part for part in parts if isinstance(part, Chosen)]
    if not chosen:
        return torch.cat([part for part in parts if isinstance(part, Tensor)])
    dtype = reduce(torch.promote_types, [part.dtype for part in chosen])
    sizes = [len(part) for part in chosen]
    x = torch.empty(sum(sizes), *chosen[0].values.shape[1:], dtype=dtype)
    for part, place in zip(chosen, torch.split(x, sizes), strict=True):
        torch.index_select(part.values.to(dtype), 0, torch.from_numpy(part.rows), out=place)
    return x


def by_name(seed: int, stream: Stream, names: Iterable[str]) -> list[np.random.Generator]:
    """The random generator of each client; it does not depend on the other clients."""
    return [generator(seed, stream, crc32(name.encode())) for name in names]


X = TypeVar("X", Chosen, NDArray[Any])
Y = TypeVar("Y", Tensor, NDArray[Any])


def set_apart(
    shards: Sequence[tuple[X, Y]],
    names: Sequence[str],
    fraction: float,
    what: str,
    rngs: Iterable[np.random.Generator],
) -> tuple[list[tuple[X, Y]], list[tuple[X, Y]]]:
    """Split each client's examples into the rest and a random fraction, by its own generator.

    `what` is the name of the setting of the fraction. Raises `UsageError` if no examples of a
    client would remain.
    """
    check(0 <= fraction < 1, what, fraction, "in [0, 1)")
    left, apart = [], []
    for (x, y), name, rng in zip(shards, names, rngs, strict=True):
        order = rng.permutation(len(x))
        cut = len(x) - round(fraction * len(x))
        expected = f"low enough: of the {len(x)} examples of client {name} none is left"
        check(cut > 0 or not len(x), what, fraction, f"{expected} for training")
        left.append((x[order[:cut]], y[order[:cut]]))
        apart.append((x[order[cut:]], y[order[cut:]]))
    return left, apart


def for_validation(
    shards: Sequence[tuple[Any, Y]], fraction: float | None
) -> Sequence[tuple[Any, Y]] | None:
    """Each client's validation examples; None if no client has any.

    Raises `UsageError` if a positive `fraction` was to give some: rounds would be judged by test
    examples without a word.
    """
    some = any(len(y) for _, y in shards)
    expected = "0, or enough for an example of at least one client"
    check(some or not fraction, "validation_fraction", fraction, expected)
    return shards if some else None
