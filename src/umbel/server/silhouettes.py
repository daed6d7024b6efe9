"""Choice of the number of clusters by the silhouette."""

from __future__ import annotations

import torch
from torch import Tensor

from umbel.server.clustering import Linkage, agglomerate, first_alike

SAME = 1e-9
"""Smaller differences of silhouettes are rounding errors: they count as equal."""


def best_by_silhouette(distance: Tensor, linkage: Linkage, largest: int) -> tuple[Tensor, float]:
    """Hierarchical clusters by distances (N, N): labels (N,), and their mean silhouette.

    The number of clusters, from 2 to `largest`, has the largest mean silhouette (Rousseeuw 1987);
    on a tie it is the smallest number. Rows at no distance from each other are always in one
    cluster. The silhouette is not defined for N clusters or more, so fewer than three rows are one
    cluster, and so are rows that are all alike, with a silhouette of 0.
    """
    from sklearn.metrics import silhouette_score

    matrix = distance.double().clamp(min=0).fill_diagonal_(0)
    best, highest = agglomerate(matrix, linkage, 1), 0.0
    most = min(largest, len(distance) - 1, len(torch.unique(first_alike(matrix))))
    for number in range(2, most + 1):
        labels = agglomerate(matrix, linkage, number)
        score = float(silhouette_score(matrix.numpy(), labels.numpy(), metric="precomputed"))
        if number == 2 or score > highest + SAME:
            best, highest = labels, score
    return best, highest
