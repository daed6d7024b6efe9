"""How many clusters are told apart best, by the silhouette."""

from __future__ import annotations

from torch import Tensor

from umbel.server.clustering import Linkage, agglomerate

SAME = 1e-9
"""Silhouettes that differ by less are equally good: it is rounding."""


def best_by_silhouette(distance: Tensor, linkage: Linkage, largest: int) -> tuple[Tensor, float]:
    """Hierarchical clusters by distances (N, N): labels (N,), and their mean silhouette.

    Their number, from 2 to `largest`, is the one with the largest mean silhouette (Rousseeuw 1987);
    of equally good numbers the smallest. N clusters or more have no silhouette, so fewer than three
    rows are one cluster, whose silhouette is taken for 0.
    """
    from sklearn.metrics import silhouette_score

    matrix = distance.double().clamp(min=0).fill_diagonal_(0)
    best, highest = agglomerate(matrix, linkage, 1), 0.0
    for number in range(2, min(largest, len(distance) - 1) + 1):
        labels = agglomerate(matrix, linkage, number)
        score = float(silhouette_score(matrix.numpy(), labels.numpy(), metric="precomputed"))
        if number == 2 or score > highest + SAME:
            best, highest = labels, score
    return best, highest
