"""Updates of clients -> steps of models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from umbel.layout import Layout


def cluster_mean(rows: Tensor, labels: Tensor, weights: Tensor, num_clusters: int) -> Tensor:
    """Weighted mean of rows (N, P) within each cluster: (K, P), 0 where nobody is."""
    weights = weights.double()
    total = torch.zeros(num_clusters, dtype=torch.float64).index_add_(0, labels, weights)
    share = (weights / total[labels]).to(rows.dtype)
    means = rows.new_zeros(num_clusters, rows.shape[1])
    return means.index_add_(0, labels, rows * share[:, None])


@dataclass(frozen=True)
class Averaging:
    """How updates become steps; an option of every method."""

    weights: Literal["examples", "equal"] = "examples"  # a client's weight in an average
    shared: tuple[str, ...] = ()  # parameters averaged over all clients: patterns of their names

    def step(
        self,
        update: Tensor,
        labels: Tensor,
        num_examples: Tensor,
        num_clusters: int,
        layout: Layout,
    ) -> Tensor:
        """The step of each cluster's model: updates (N, P), labels (N,) -> (K, P).

        A cluster without clients stays where it is, except for shared parameters (Ghosh et al.
        2020, weight sharing): those of all clusters take the same step.
        """
        weights = num_examples if self.weights == "examples" else torch.ones_like(num_examples)
        step = cluster_mean(update, labels, weights, num_clusters)
        if not self.shared:
            return step
        everyone = cluster_mean(update, torch.zeros_like(labels), weights, 1)
        return torch.where(layout.mask(self.shared), everyone, step)
