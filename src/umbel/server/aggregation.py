"""Averages of clients' updates, which are steps of the models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from umbel.client.layout import Layout
from umbel.reduction import MANY, Reduction, Sums, cluster_sums
from umbel.settings import Settings


def cluster_mean(rows: Tensor, labels: Tensor, weights: Tensor, num_clusters: int) -> Tensor:
    """Weighted mean of rows (N, P) within each cluster: (K, P), 0 for a cluster without clients.

    Means of whole numbers, or of True and False, are of single precision.

    >>> import torch
    >>> from umbel.method import cluster_mean
    >>> cluster_mean(torch.tensor([[4.0], [0.0]]), torch.tensor([0, 0]), torch.tensor([1, 3]), 2)
    tensor([[1.],
            [0.]])
    """
    return cluster_sums(rows, labels, weights, num_clusters).means()


@dataclass(frozen=True)
class Averaging(Settings):
    """Weights and shared parameters of averages of updates: an option of most methods.

    >>> umbel.FedAvg(averaging=umbel.Averaging("equal", shared=("trunk.*",))).averaging.weights
    'equal'
    """

    #: weight of a client in an average: its number of examples, or 1
    weights: Literal["examples", "equal"] = "examples"
    #: patterns of the names of parameters that are averaged over all clients
    shared: tuple[str, ...] = ()

    def step(
        self,
        update: Tensor,
        labels: Tensor,
        num_examples: Tensor,
        num_clusters: int,
        layout: Layout,
    ) -> Tensor:
        """Return the step of each cluster's model: updates (N, P), labels (N,) -> (K, P).

        step_k = sum_i w_i update_i / sum_i w_i over the clients i of cluster k, where w_i is the
        number of examples, or 1.

        The model of a cluster without clients does not change, except for shared parameters (Ghosh
        et al. 2020, weight sharing), which take the same step in all clusters.
        """
        weights = num_examples if self.weights == "examples" else torch.ones_like(num_examples)
        return self.step_of(cluster_sums(update, labels, weights, num_clusters), layout)

    def reduction(self, num_clusters: int, labels: Tensor | None = None) -> Reduction:
        """Return the reduction for `step_of`; labels (M,) of clients, or None if they choose."""
        weights = "num_examples" if self.weights == "examples" else None
        return Reduction(num_clusters, labels, weights)

    def reduction_among(
        self, cohort: Tensor, labels: Tensor, num_clusters: int
    ) -> tuple[Reduction, Tensor | None]:
        """The reduction for a cohort (N,), and the clusters (J,) of its first rows; None: all.

        With many clusters, perhaps as many as clients, only those of the cohort are summed. Rows
        are added one by one as before, so that the sums are the same to the last bit.
        """
        asked = torch.unique(labels[cohort])
        # At least MANY + 1 rows: with fewer, a matrix product would add in another order.
        rows = max(len(asked), MANY + 1)
        if self.shared or rows >= num_clusters:
            return self.reduction(num_clusters, labels), None
        # places (K,): the row of each asked cluster among these; other clusters have no client
        # here.
        places = torch.zeros(num_clusters, dtype=torch.long)
        places[asked] = torch.arange(len(asked))
        return self.reduction(rows, places[labels]), asked

    def step_of(self, sums: Sums, layout: Layout) -> Tensor:
        """Return the step (K, P) from sums of updates."""
        means = sums.means()
        if not self.shared:
            return means
        # Shared parameters: one mean over the clients of all clusters, in every row.
        everyone = Sums(
            sums.values.sum(0, keepdim=True), sums.weights.sum(0, keepdim=True), sums.dtype
        )
        return torch.where(layout.mask(self.shared), everyone.means(), means)


def moved(models: Tensor, step: Tensor, clusters: Tensor | None) -> Tensor:
    """Add a step to all models (K, P), or its first J rows to those of `clusters` (J,)."""
    if clusters is None:
        return models + step
    return models.index_add(0, clusters, step[: len(clusters)])
