"""The clients whose validation examples ways are compared by."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from umbel.advice.examples import Ints
from umbel.client.batches import Batch
from umbel.data.splits import Split

FEWEST_CLIENTS = 6
"""Fewer clients are compared by example: 5 clients agree in sign by chance in 1 of 16 cases."""


def judges(split: Split) -> NDArray[np.bool_]:
    """(M,) the clients whose losses count in means and gains.

    They are all clients, unless ways are compared by example: a client with a single example, whose
    error nobody knows, then does not count, if there is one with more.
    """
    several = num_labelled(split) > 1
    return several if by_example(split) and several.any() else np.full_like(several, True)


def by_example(split: Split) -> bool:
    """Whether too few clients have examples to be compared by their means."""
    return int((num_labelled(split) > 0).sum()) < FEWEST_CLIENTS


def num_labelled(split: Split) -> Ints:
    """(M,) each client's number of examples with labels that count, so that a loss is known."""
    counts = (Batch(*split.of(client)).counts for client in range(len(split.sizes)))
    pairs = zip(counts, split.sizes.tolist(), strict=True)
    return np.array([size if each is None else int((each > 0).sum()) for each, size in pairs])
