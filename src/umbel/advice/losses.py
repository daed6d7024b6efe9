"""The losses of single examples, with the models that a way serves."""

from __future__ import annotations

import numpy as np

from umbel.advice.examples import Floats
from umbel.advice.trial import Standing
from umbel.client.net import Net
from umbel.data.splits import Split

Losses = list[Floats]


def example_losses(net: Net, split: Split, standing: Standing) -> Losses:
    """The loss of each client's examples, in order; NaN where the way has no models."""
    served, found = standing.served, []
    for client in range(len(split.sizes)):
        x, y = split.typed(client, net.dtype)
        values = np.full(len(x), np.nan)
        if served is not None and len(x):
            theta = served.table[served.index[client]]
            values = net.objective.losses(net.outputs(theta, x), y).double().numpy()
        found.append(values)
    return found
