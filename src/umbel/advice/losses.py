"""The losses of single examples, with the models that a way serves.

Where examples have many labels, their mean is the client's loss, in which labels count alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch

from umbel.advice.examples import Floats
from umbel.advice.trial import Standing
from umbel.advice.validation_clients import by_example
from umbel.client.batches import Batch
from umbel.client.net import Net
from umbel.data.federation import Federation
from umbel.data.splits import Split
from umbel.newcomers import confidence

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
    """The same, with their losses by example where clients are too few to judge by."""
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
