"""A few training examples on which networks and objectives are tried."""

from __future__ import annotations

import torch

from umbel.client.batches import Batch
from umbel.client.net import Net
from umbel.data.federation import Federation
from umbel.data.splits import typed

FEW_EXAMPLES = 8
"""Number of training examples on which the range of outputs is tried."""

SOME_EXAMPLES = 32
"""Number of training examples on which an objective of the user's own is tried."""


def sample(net: Net, federation: Federation, count: int = 2) -> Batch:
    """A few training examples of all clients, in the network's floating-point type."""
    split = federation.train
    rows = torch.linspace(0, len(split.x) - 1, count, dtype=torch.double).round().long()
    return Batch(typed(split.x[rows], net.dtype), typed(split.y[rows], net.dtype))
