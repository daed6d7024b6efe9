"""Clusters of newcomers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from umbel.notebooks import cut
from umbel.summary import counted, few


@dataclass(frozen=True)
class Assignment:
    """Clusters of newcomers: a score of each newcomer for each cluster of a run; the lowest wins.

    `Result.assign` gives one.
    """

    clients: tuple[str, ...]  #: the newcomers' names
    scores: Tensor  #: (N, K) a column for each cluster, in the order of `clusters.csv`
    meaning: str  #: what a score is, such as training loss
    #: (N,) probability that the chosen cluster is the best, in [0, 1]; None: the rule can't tell
    confidence: Tensor | None = None
    #: the statement to which the confidence refers, such as "no other cluster's model fits it
    #: better"
    sure_of: str = ""
    #: (N,) loss of their cluster's model on their examples; None: unknown
    losses: Tensor | None = None
    #: the lowest and the highest loss of the run's own clients, on test examples; None: unknown
    run_losses: tuple[float, float] | None = None

    def __repr__(self) -> str:
        placed = [f"{name}: {cluster}" for name, cluster in self.clusters.items()]
        odd = f"; unlike the run's clients: {few([*self.unlike])}" if self.unlike else ""
        return f"Assignment: {counted(len(placed), 'newcomer')}, their clusters: {few(placed)}{odd}"

    def _repr_html_(self) -> str:
        best = self.scores.min(1).values.tolist()
        pairs = zip(self.clusters.items(), best, strict=True)
        rows = [(name, str(cluster), f"{score:.4g}") for (name, cluster), score in pairs]
        return cut(("client", "cluster", self.meaning), rows, repr(self), "clients")._repr_html_()

    @cached_property
    def clusters(self) -> dict[str, int]:
        """The cluster of each client, by name."""
        return dict(zip(self.clients, self.scores.argmin(1).tolist(), strict=True))

    @cached_property
    def unlike(self) -> dict[str, float]:
        """Return the newcomers with a higher loss than any client of the run, with their losses.

        They were assigned to the best cluster, which may still fit badly. Of newcomers that are
        like the N clients of the run, one in N + 1 is among these by chance.
        """
        if self.losses is None or self.run_losses is None:
            return {}
        most, pairs = self.run_losses[1], zip(self.clients, self.losses.tolist(), strict=True)
        most += 1e-5 * abs(most)  # equal losses may differ by rounding errors
        return {name: loss for name, loss in pairs if not loss <= most}
