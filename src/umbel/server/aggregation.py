"""Averages of clients' updates, which are steps of the models."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Literal

import torch
from torch import Tensor

from umbel.checks import check
from umbel.client.layout import Layout
from umbel.reduction import MANY, Reduction, Sums, Updates, cluster_sums
from umbel.server.averaging_rules import (
    AveragingRule,
    FedAdagrad,
    FedAdam,
    FedAvgM,
    FedYogi,
    Mean,
    Moments,
)
from umbel.server.robust_rules import (
    FLAME,
    CentredClipping,
    FLTrust,
    GeometricMedian,
    Krum,
    Median,
    MultiKrum,
    NormBound,
    TrimmedMean,
)
from umbel.settings import Settings

RULES: dict[str, type[AveragingRule]] = {
    "mean": Mean,
    "fedavgm": FedAvgM,
    "fedadagrad": FedAdagrad,
    "fedadam": FedAdam,
    "fedyogi": FedYogi,
    "trimmed-mean": TrimmedMean,
    "median": Median,
    "geometric-median": GeometricMedian,
    "krum": Krum,
    "multi-krum": MultiKrum,
    "centred-clipping": CentredClipping,
    "norm-bound": NormBound,
    "fltrust": FLTrust,
    "flame": FLAME,
}


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
    """Weights, shared parameters and rule of averages of updates: an option of most methods.

    >>> umbel.FedAvg(averaging=umbel.Averaging("equal", shared=("trunk.*",))).averaging.weights
    'equal'
    """

    #: weight of a client in an average: its number of examples, or 1
    weights: Literal["examples", "equal"] = "examples"
    #: patterns of the names of parameters that are averaged over all clients
    shared: tuple[str, ...] = ()
    #: how averages become steps: by their mean, or by an optimiser of the server
    rule: AveragingRule = field(default_factory=Mean)

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
        et al. 2020, weight sharing), which take the same step in all clusters. A rule that has
        moments is refused: see `move`.
        """
        return self.step_of(self.sums(update, labels, num_examples, num_clusters), layout)

    def sums(
        self,
        update: Tensor,
        labels: Tensor,
        num_examples: Tensor,
        num_clusters: int,
        clients: Tensor | None = None,
    ) -> Sums | Updates:
        """Sum updates (N, P) by their labels (N,); if the rule needs rows, leave them as they are.

        They are weighted by the number of examples (N,), or equally, as `weights` says. A rule that
        trusts some clients needs the numbers of all `clients` (N,).
        """
        weights = num_examples if self.weights == "examples" else torch.ones_like(num_examples)
        updates = Updates(update, labels, weights, num_clusters, clients)
        return updates if self.rule.needs_rows else updates.sums()

    def reduction(self, num_clusters: int, labels: Tensor | None = None) -> Reduction:
        """Return the reduction for `step_of`; labels (M,) of clients, or None if they choose."""
        weights = "num_examples" if self.weights == "examples" else None
        return Reduction(num_clusters, labels, weights, rows=self.rule.needs_rows)

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
        # Moments have a row for each cluster.
        if self.shared or self.rule != Mean() or rows >= num_clusters:
            return self.reduction(num_clusters, labels), None
        # places (K,): the row of each asked cluster among these; other clusters have no client
        # here.
        places = torch.zeros(num_clusters, dtype=torch.long)
        places[asked] = torch.arange(len(asked))
        return self.reduction(rows, places[labels]), asked

    def step_of(self, sums: Sums | Updates, layout: Layout) -> Tensor:
        """Return the step (K, P) from sums of updates. A rule that has moments is refused."""
        step, moments = self.move(sums, layout)
        expected = "one without moments: this method averages by `step`, and not by `move`"
        check(not moments, "averaging.rule", type(self.rule).__name__, expected)
        return step

    def mean(
        self,
        sums: Sums | Updates,
        layout: Layout,
        moments: Moments = (),
        scale: float = 1.0,
    ) -> Tensor:
        """Return the mean update (K, P) of each cluster by the rule, before any optimiser.

        `moments` are those of the state, which a rule of rows may need. `scale` is the factor by
        which the method makes a step of the mean, if rows are not updates.
        """
        if isinstance(sums, Updates):
            kept = moments if moments and len(moments[0]) == sums.num_clusters else ()
            sums = replace(sums, num_weights=layout.num_weights, moments=kept, scale=scale)
        means = self.rule.mean(sums)
        if not self.shared:
            return means
        # Shared parameters: one mean over the clients of all clusters, in every row.
        return torch.where(layout.mask(self.shared), self.rule.mean(sums.together()), means)

    # What a server's optimiser remembers of a model is a row of the state beside the model's row.
    # A wrapper around rounds would have to guess the mean from models before and after, which
    # rounding forbids, and which row was copied where; a method that copies rows knows it. A method
    # that drops the moments, by `step`, is refused instead of ignoring the rule.
    def move(
        self, sums: Sums | Updates, layout: Layout, moments: Moments = ()
    ) -> tuple[Tensor, Moments]:
        """Return the step (K, P) from sums of updates, and the moments for the next state.

        `moments` are those of the state. If they are not of K clusters, since clusters were found
        or divided without them, all start anew.
        """
        return self.advance(self.mean(sums, layout, moments), sums.weights > 0, layout, moments)

    def advance(
        self, mean: Tensor, answered: Tensor, layout: Layout, moments: Moments = ()
    ) -> tuple[Tensor, Moments]:
        """Do as `move` with means (K, P), and with which clusters have an answer (K,)."""
        if type(self.rule).step is AveragingRule.step:
            return mean, ()
        # Statistics of normalisation layers, the values after the weights, must not overshoot:
        # extrapolated variances can be negative. Half precision has no room for squares.
        wide = torch.promote_types(mean.dtype, torch.float32)
        weights = mean[:, : layout.num_weights].to(wide)
        if not moments or len(moments[0]) != len(mean):
            moments = self.rule.start(weights)
        step, after = self.rule.step(weights, moments)
        # Without an answer, a cluster keeps model and moments; shared parameters need any answer.
        alive = answered[:, None] & torch.ones_like(weights, dtype=torch.bool)
        if self.shared:
            alive |= layout.mask(self.shared)[: layout.num_weights] & answered.any()
        steps = mean.clone()
        steps[:, : layout.num_weights] = step.where(alive, 0).to(mean.dtype)
        return steps, tuple(map(torch.where, repeat(alive), after, moments))


def moved(models: Tensor, step: Tensor, clusters: Tensor | None) -> Tensor:
    """Add a step to all models (K, P), or its first J rows to those of `clusters` (J,)."""
    if clusters is None:
        return models + step
    return models.index_add(0, clusters, step[: len(clusters)])
