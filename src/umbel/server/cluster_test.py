"""A test whether clients form more groups than by chance, and their number of clusters.

The clients' vectors are compared with simulated vectors without groups: equally many, normally
distributed, and with the same variance along each principal axis, as in Liu et al. 2008 (SigClust).
Both are clustered by Ward's method along the leading axes. The gap of Tibshirani et al. 2001
measures by how much the sum of squares within k clusters is smaller than in the simulated sets.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

LEVEL = 0.05
"""Significance level: probability that clients without groups count as several clusters."""

NEARLY = 0.8
"""Take the fewest clusters whose gap is at least this share of the widest gap.

More would split groups at random.
"""

REFERENCES = 199
"""Number of simulated sets of clients."""

AXES = (1, 2, 3, 4, 5, 6, 8, 10)
"""Numbers of leading axes on which groups are searched, in addition to all axes."""

MOST_CLIENTS = 200
"""Largest number of clients in the test; from more clients, a random sample is taken."""

TINY = 1e-6
"""Added to every sum of squares, as a share of the total.

It prevents rounding errors from counting as structure.
"""


def judge(profile: Tensor, largest: int, seed: int) -> tuple[int, float]:
    """The number of clusters of clients with vectors (M, D), 1 to `largest`, and the chance.

    The chance is the share of simulated sets without groups that look as clearly grouped; below
    `LEVEL` there are several clusters. At most half as many clusters as clients are considered,
    since clusters of single clients can't be distinguished from chance. Gaps are measured in
    standard deviations over the simulated sets.
    """
    rng = np.random.default_rng(seed)
    if len(profile) > MOST_CLIENTS:
        drawn_clients = np.sort(rng.choice(len(profile), MOST_CLIENTS, replace=False))
        profile = profile[torch.from_numpy(drawn_clients)]
    rows = _principal(profile.detach().cpu().double().numpy())
    if not rows.size:
        return 1, 1.0
    # The hypothesis: one normal distribution with these deviations along the principal axes.
    deviation = rows.std(0, ddof=1)
    largest = min(largest, max(2, len(rows) // 2))
    axes = sorted({min(number, rows.shape[1]) for number in (*AXES, rows.shape[1])})
    curve = _curves(rows, largest, axes)
    drawn = [_principal(rng.standard_normal(rows.shape) * deviation) for _ in range(REFERENCES)]
    without = np.stack([_curves(reference, largest, axes) for reference in drawn])
    # curve (A, largest - 1): log of the share of squares within 2, 3, ... clusters, on each set of
    # axes.
    mean, spread = without.mean(0), without.std(0) + 1e-9
    # Gap of the clients, and the widest gap of each simulated set, in the same units.
    most = (mean - curve) / spread
    highest = ((mean - without) / spread).max((1, 2))
    # The p-value of a Monte Carlo test: the clients count as one of the sets, so it is never 0.
    chance = float((1 + (highest >= most.max()).sum()) / (1 + REFERENCES))
    if chance >= LEVEL:
        return 1, chance
    # On the axes with the widest gap; +2 as the first entry is for two clusters.
    curve = most[most.max(1).argmax()]
    return int((curve >= NEARLY * curve.max()).argmax()) + 2, chance


def _principal(vectors: NDArray[np.float64]) -> NDArray[np.float64]:
    """The centred vectors in coordinates of their principal axes, in descending variance."""
    centred = vectors - vectors.mean(0)
    # From the Gram matrix (M, M), since D is often far larger than M: coordinates are U S.
    values, axes = np.linalg.eigh(centred @ centred.T)
    values, axes = values[::-1], axes[:, ::-1]
    some = values > 1e-10 * np.square(vectors).sum()
    rows: NDArray[np.float64] = axes[:, some] * np.sqrt(values[some])
    return rows


def _curves(rows: NDArray[np.float64], largest: int, axes: Sequence[int]) -> NDArray[np.float64]:
    """Return, for each number of axes, the log shares of squares within 2, 3, ... clusters."""
    from scipy.cluster.hierarchy import linkage

    tiny = TINY * np.square(rows).sum()
    curves = []
    for number in axes:
        merges = linkage(rows[:, :number], "ward")[:, 2] ** 2 / 2  # squares added by each merge
        within = np.cumsum(merges)[::-1] + tiny
        curves.append(np.log(within[1:largest] / within[0]))
    return np.stack(curves)
