"""The losses of single examples, with the models that a way serves.

Where examples have many labels, their mean is the client's loss, in which labels count alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray

from umbel.advice.examples import Floats, Ints
from umbel.advice.trial import Standing
from umbel.client.batches import Batch
from umbel.client.net import Net
from umbel.data.federation import Federation
from umbel.data.splits import Split
from umbel.newcomers import confidence

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
    """True if too few clients have examples to be compared by their means."""
    return int((num_labelled(split) > 0).sum()) < FEWEST_CLIENTS


def num_labelled(split: Split) -> Ints:
    """(M,) each client's number of examples with labels that count, so that a loss is known."""
    counts = (Batch(*split.of(client)).counts for client in range(len(split.sizes)))
    pairs = zip(counts, split.sizes.tolist(), strict=True)
    return np.array([size if each is None else int((each > 0).sum()) for each, size in pairs])


Losses = list[Floats]


def example_losses(net: Net, split: Split, standing: Standing) -> Losses:
    """The losses of each client's examples with labels; NaN where the way has no models."""
    served, found = standing.served, []
    for client in range(len(split.sizes)):
        batch = Batch(*split.typed(client, net.dtype))
        if served is not None and len(batch.x):
            theta = served.table[served.index[client]]
            found.append(confidence.example_losses(net, [theta], batch)[:, 0])
        else:
            nothing = torch.full((len(batch.x),), torch.nan, dtype=torch.double)
            found.append(batch.unweighted(nothing).numpy())
    return found


def with_examples(
    net: Net, trial: Federation, standings: Sequence[Standing]
) -> tuple[Standing, ...]:
    """Return the losses with those of single examples, if clients are too few."""
    if not by_example(trial.test):
        return tuple(standings)
    return tuple(
        replace(
            each,
            examples=tuple(example_losses(net, trial.test, each)),
            rivals=with_examples(net, trial, each.rivals),
        )
        for each in standings
    )
