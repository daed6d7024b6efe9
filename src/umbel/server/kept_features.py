"""The values of gradients that clients are clustered by, and the features kept of them."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from umbel.checks import check
from umbel.client.layout import Layout
from umbel.server.ask import Features


def allowed(layout: Layout, parameters: tuple[str, ...]) -> Tensor:
    """(J,) the trained values that features can consist of: those of `parameters`, or all.

    Raises `UsageError` if no parameter matches the patterns.
    """
    values = torch.arange(layout.num_weights)
    if parameters:
        values = values[layout.mask(parameters, "parameters")[: layout.num_weights]]
    check(len(values) > 0, "parameters", parameters, "patterns for trained parameters")
    return values


def drawn(values: Tensor, compression: float, rng: np.random.Generator) -> Tensor:
    """A random sample of these values, one in `compression` but at least one, in their order."""
    kept = max(1, round(len(values) / compression))
    return values[np.sort(rng.choice(len(values), kept, replace=False))]


def moved(block: Tensor, answer: Features, rate: Tensor) -> Tensor:
    """Features (M, J) after each client's row has moved to its answer (N, J) by a rate (N,)."""
    everyone = torch.equal(answer.clients, torch.arange(len(block)))
    old = block if everyone else block[answer.clients]
    near = torch.lerp(old, answer.feature, rate[:, None])
    return near if everyone else block.index_copy(0, answer.clients, near)


def to_means(mine: Tensor, theirs: Tensor, labels: Tensor, count: int) -> Tensor:
    """Distances (N, K) of features (N, J) to the mean of features (L, J) for each label (L,).

    Distances to a cluster without clients are infinite.
    """
    centres = torch.stack([theirs[labels == k].mean(0) for k in range(count)])
    return torch.cdist(mine.double(), centres.double()).nan_to_num(torch.inf)
