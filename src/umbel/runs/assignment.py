"""Clusters of newcomers."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from umbel.notebooks import cut
from umbel.summary import counted, few


@dataclass(frozen=True)
class Assignment:
    """Clusters of newcomers: how well each fits every cluster of a run; the lowest score wins.

    `Result.assign` gives one.
    """

    clients: tuple[str, ...]  #: the newcomers' names
    scores: Tensor  #: (N, K) a column for each cluster, in the order of `clusters.csv`
    meaning: str  #: what a score is, such as training loss
    #: (N,) how likely the cluster is the best of them, in [0, 1]; None: the rule can't tell
    confidence: Tensor | None = None
    #: what the confidence is of, which need not be the rule that placed newcomers
    sure_of: str = ""

    def __repr__(self) -> str:
        placed = [f"{name}: {cluster}" for name, cluster in self.clusters.items()]
        return f"Assignment: {counted(len(placed), 'newcomer')}, their clusters: {few(placed)}"

    def _repr_html_(self) -> str:
        best = self.scores.min(1).values.tolist()
        pairs = zip(self.clusters.items(), best, strict=True)
        rows = [(name, str(cluster), f"{score:.4g}") for (name, cluster), score in pairs]
        return cut(("client", "cluster", self.meaning), rows, repr(self), "clients")._repr_html_()

    @property
    def clusters(self) -> dict[str, int]:
        """The cluster of each client, by name."""
        return dict(zip(self.clients, self.scores.argmin(1).tolist(), strict=True))
