"""How the server averages clients' updates to steps of models."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from umbel.client.layout import Layout
from umbel.reduction import Reduction, Sums, cluster_sums
from umbel.settings import Settings


def cluster_mean(rows: Tensor, labels: Tensor, weights: Tensor, num_clusters: int) -> Tensor:
    """Weighted mean of rows (N, P) within each cluster: (K, P), 0 for a cluster without clients.

    >>> import torch
    >>> from umbel.method import cluster_mean
    >>> cluster_mean(torch.tensor([[4.0], [0.0]]), torch.tensor([0, 0]), torch.tensor([1, 3]), 2)
    tensor([[1.],
            [0.]])
    """
    return cluster_sums(rows, labels, weights, num_clusters).means()


@dataclass(frozen=True)
class Averaging(Settings):
    """How updates are averaged to steps of models: an option of every method that averages.

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
        """The step of each cluster's model: updates (N, P), labels (N,) -> (K, P).

        The model of a cluster without clients does not change, except for shared parameters (Ghosh
        et al. 2020, weight sharing), which take the same step in all clusters.
        """
        weights = num_examples if self.weights == "examples" else torch.ones_like(num_examples)
        return self.step_of(cluster_sums(update, labels, weights, num_clusters), layout)

    def reduction(self, num_clusters: int, labels: Tensor | None = None) -> Reduction:
        """The reduction for `step_of`; labels (M,) of all clients, or None if clients choose."""
        weights = "num_examples" if self.weights == "examples" else None
        return Reduction(num_clusters, labels, weights)

    def step_of(self, sums: Sums, layout: Layout) -> Tensor:
        """Return the step (K, P) from sums of updates."""
        means = sums.means()
        if not self.shared:
            return means
        everyone = Sums(
            sums.values.sum(0, keepdim=True), sums.weights.sum(0, keepdim=True), sums.dtype
        )
        return torch.where(layout.mask(self.shared), everyone.means(), means)
