"""The probability that a newcomer's cluster has the best model for it, by its losses."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from umbel.client.batches import SLICE, Batch
from umbel.client.net import Net

LEAST_ERROR = 1e-12
"""Losses that never differ are of equal models, of which neither is better."""

Losses = Sequence[NDArray[np.float64]]
"""For each newcomer (n, K): the loss of each model on each of its examples."""


def example_losses(
    net: Net, models: Sequence[Tensor], examples: Batch, width: int = SLICE
) -> NDArray[np.float64]:
    """(n, K) the loss of each of `models`, (P,) each, on each of n examples with labels.

    At most `width` examples go through the network at once.
    """
    pairs = zip(torch.split(examples.x, width), torch.split(examples.y, width), strict=True)
    parts = [Batch(x, y) for x, y in pairs]
    with torch.no_grad():
        each = [torch.cat([net.losses(theta, part) for part in parts]) for theta in models]
        return torch.stack([examples.unweighted(one.double()) for one in each], 1).numpy()


def confidences(losses: Losses, chosen: Sequence[int]) -> list[float]:
    """A lower bound on the probability that each newcomer's chosen model is the best for it.

    For every other model, Student's t test on the differences of losses by example gives the
    probability that it is better. The bound is 1 minus the sum of these, as the best was picked
    from all models. With few examples the standard deviation may be small by chance, so that it is
    at least the one that is usual among the newcomers.
    """
    from scipy.stats import chi2

    sizes = np.array([len(mine) for mine in losses])
    # A median takes longer to find than the variances of a newcomer: one for each size at once.
    freedom, which = np.unique(np.maximum(sizes - 1, 1), return_inverse=True)
    factors = (freedom / chi2.median(freedom))[which]
    usual = {best: _usual(losses, best, factors) for best in set(chosen)}
    return [_sure(mine, best, usual[best]) for mine, best in zip(losses, chosen, strict=True)]


def _sure(losses: NDArray[np.float64], best: int, usual: NDArray[np.float64]) -> float:
    from scipy.stats import t

    size, count = len(losses), int(losses.shape[1])
    if size < 2 or count == 1:
        return 1 / count
    gaps = losses - losses[:, [best]]
    means, variances = gaps.mean(0), np.maximum(gaps.var(0, ddof=1), usual)
    errors = np.maximum(np.sqrt(variances / size), LEAST_ERROR)
    doubts = np.delete(t.sf(means / errors, df=size - 1), best)
    # The best of K models has at least 1/K; another rule than the loss may have chosen a worse one.
    least = 1 / count if (means >= 0).all() else 0.0
    return float(max(least, 1 - doubts.sum()))


def _usual(losses: Losses, best: int, factors: NDArray[np.float64]) -> NDArray[np.float64]:
    """(K,) the variance of the gap between each model's loss and the best one's, at a newcomer.

    It is the median over newcomers, each times its factor: the inverse of what it would be in the
    median for normal gaps of variance 1.
    """
    told = [
        (mine - mine[:, [best]]).var(0, ddof=1) * factor
        for mine, factor in zip(losses, factors, strict=True)
        if len(mine) > 1
    ]
    return np.asarray(np.median(told, axis=0)) if told else np.zeros(losses[0].shape[1])
