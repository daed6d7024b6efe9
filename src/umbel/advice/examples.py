"""The training examples that clients are compared by: numbers, dealt into two halves a client."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np
import torch
from numpy.typing import NDArray

from umbel.client.batches import IGNORED
from umbel.client.objectives import BINARY, Objective
from umbel.data.federation import Federation
from umbel.seeds import Stream, generator
from umbel.summary import in_short

MOST_EXAMPLES = 20_000
"""Largest number of examples; of larger federations, a random part of each client's is used."""

FEWEST_EXAMPLES = 4
"""Fewest training examples of a client to be compared: each half needs two."""

BINS = 256
"""Number of bins in which whole-number inputs, such as characters and words, are counted."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Pooled:
    """Examples of the clients that have enough of them, one client after another."""

    inputs: Floats  #: (N, D) inputs as rows of numbers
    targets: Floats  #: (N, C) labels as indicators or shares, or the targets of a regression
    labels: Ints | None  #: (N,) the labels themselves, where each example has one
    owner: Ints  #: (N,) the client of each example: a position in `clients`
    half: Ints  #: (N,) the half that each example is in: 0 or 1
    clients: Ints  #: (M',) the clients that are compared
    classes: int | None  #: number of labels; None: regression

    __repr__ = in_short

    @property
    def num_clients(self) -> int:
        """M', the clients that are compared."""
        return len(self.clients)


def pooled(federation: Federation, seed: int, objective: Objective | None = None) -> Pooled:
    """Training examples of the clients with at least `FEWEST_EXAMPLES`, each dealt into halves.

    Targets of several answers of yes and no are numbers, one for each question.
    """
    rng = generator(seed, Stream.ADVICE)
    train, sizes = federation.train, federation.train.sizes
    clients = np.flatnonzero(sizes >= FEWEST_EXAMPLES)
    share = min(1.0, MOST_EXAMPLES / max(1, int(sizes[clients].sum())))
    rows, owner, half = [], [], []
    for place, client in enumerate(clients):
        size = int(sizes[client])
        kept = max(FEWEST_EXAMPLES, round(share * size))
        rows.append(train.offsets[client] + rng.permutation(size)[:kept])
        owner.append(np.full(kept, place))
        half.append(np.arange(kept) % 2)
    chosen = torch.from_numpy(np.concatenate(rows)) if rows else torch.zeros(0, dtype=torch.long)
    x, y = train.x[chosen], train.y[chosen]
    classes = None if objective == BINARY and y.dim() > 1 else federation.num_classes
    targets = _targets(y, classes)
    return Pooled(
        inputs=_numbers(x),
        targets=targets,
        labels=y.numpy().astype(np.int64) if classes is not None and y.dim() == 1 else None,
        owner=np.concatenate(owner) if owner else np.zeros(0, dtype=np.int64),
        half=np.concatenate(half) if half else np.zeros(0, dtype=np.int64),
        clients=clients.astype(np.int64),
        classes=classes,
    )


def _numbers(x: torch.Tensor) -> Floats:
    """Inputs as rows of numbers; whole numbers count as categories, without an order."""
    flat = x.reshape(len(x), prod(x.shape[1:]))
    if x.is_floating_point():
        return _doubles(flat)
    return _shares(flat.numpy().astype(np.int64) % BINS, BINS)


def _targets(y: torch.Tensor, classes: int | None) -> Floats:
    values = y.reshape(len(y), prod(y.shape[1:]))
    if classes is None:
        return _doubles(values)
    return _shares(values.numpy().astype(np.int64), classes)


def _doubles(values: torch.Tensor) -> Floats:
    found: Floats = values.double().numpy()  # NumPy has no bfloat16
    return found


def _shares(values: Ints, bins: int) -> Floats:
    """(N, bins): the share of each value among the values of a row that count."""
    table = np.zeros((len(values), bins))
    rows, columns = np.nonzero(values != IGNORED)
    np.add.at(table, (rows, values[rows, columns]), 1.0)
    shares: Floats = table / np.maximum(table.sum(1, keepdims=True), 1.0)
    return shares
