"""How many clusters there are, judged by the vectors that clients are clustered by.

The verdict is that of `umbel.server.cluster_test`. Beside it stand the estimates of Kim et al.
2024, Appendix G: the singular values of the gradient profile matrix, cut at their largest gap, and
then the elbow or the gap statistic on what is left of each client's vector.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from umbel.checks import check
from umbel.server.cluster_test import judge
from umbel.server.clustering import leading_projection

LARGEST = 20
"""No more clusters than this are considered."""

SURE, UNSURE = 0.01, 0.2
"""Several clusters are unsure above the first chance; a single one is likely above the second."""

REFERENCES = 20
"""Uniform reference sets of the gap statistic."""


@dataclass(frozen=True)
class ClusterCount:
    """How many clusters there seem to be: a verdict, three other estimates, and what they rest on.

    The other estimates are those of Kim et al. 2024, Appendix G.
    """

    singular_values: NDArray[np.float64]  #: those of the vectors, in falling order, 21 at most
    rank: int  #: how many come before the largest gap: s
    inertia: NDArray[np.float64]  #: of k-means with k = 1, 2, ... clusters, in s dimensions
    elbow: int  #: the k at which the inertia bends most
    gap_statistic: int  #: the k by the gap statistic of Tibshirani et al. 2001
    clusters: int  #: the verdict; 1: clients do not seem to form groups
    chance: float  #: share of federations without groups that look as grouped as these

    @property
    def agreeing(self) -> tuple[str, ...]:
        """The other estimates that come to the verdict's number."""
        others = {
            "the largest gap": self.rank,
            "the elbow": self.elbow,
            "the gap statistic": self.gap_statistic,
        }
        return tuple(name for name, number in others.items() if number == self.clusters)

    @property
    def certainty(self) -> str:
        """How sure the verdict is: "sure", "likely" or "unsure"."""
        if self.clusters == 1:
            return "likely" if self.chance > UNSURE else "unsure"
        if self.chance > SURE:
            return "unsure"
        return "sure" if len(self.agreeing) >= 2 else "likely"

    @property
    def verdict(self) -> str:
        """One sentence with the number of clusters, and one with how sure that is."""
        share = f"by chance, {self.chance:.1%} of clients without groups look as grouped as these"
        if self.clusters == 1:
            return (
                f"One cluster ({self.certainty}): {share}. Groups that are faint, or of very few "
                "clients, can't be told from chance."
            )
        agreeing = ", ".join(self.agreeing) or "none of the others"
        return (
            f"{self.clusters} clusters ({self.certainty}): {share}. "
            f"Other estimates that agree: {agreeing}."
        )

    def summary(self) -> dict[str, object]:
        """The numbers by name, and the verdict in words."""
        return {
            "clusters": self.clusters,
            "certainty": self.certainty,
            "chance": self.chance,
            "largest_gap": self.rank,
            "elbow": self.elbow,
            "gap_statistic": self.gap_statistic,
            "verdict": self.verdict,
        }


def count_clusters(profile: Tensor, seed: int = 0) -> ClusterCount:
    """Estimate how many clusters the clients with these vectors (M, D) form.

    >>> import torch
    >>> middles = torch.tensor([[4.0, 0.0], [0.0, 4.0]]).repeat_interleave(10, 0)
    >>> noise = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
    >>> umbel.count_clusters(middles + 0.3 * noise).clusters
    2

    For a finished run, pass `umbel.load(folder).profile`. Clients whose vector is NaN are left
    out. The verdict is a test against clients without groups, as in SigClust (Liu et al. 2008).
    Raises `UsageError` for fewer than three clients.
    """
    profile = known(profile)
    size = len(profile)
    check(size >= 3, "clients", size, "3 or more, to count clusters among them")
    projected = leading_projection(profile, LARGEST + 1, seed).numpy()
    values = _lengths(projected)
    rank = largest_gap(values)
    rows = projected[:, :rank]
    largest = min(LARGEST, size - 1)
    inertia = _inertia(rows, largest, seed)
    elbow, gap = _elbow(inertia), _gap(rows, inertia, seed)
    return ClusterCount(values, rank, inertia, elbow, gap, *judge(profile, LARGEST, seed))


def singular_values(profile: Tensor, seed: int = 0) -> NDArray[np.float64]:
    """Return the largest singular values of clients' vectors (M, D), in falling order."""
    return _lengths(leading_projection(known(profile), LARGEST + 1, seed).numpy())


def known(profile: Tensor) -> Tensor:
    """The vectors (N, D) of those clients that have one: others are NaN."""
    silent = profile.isnan().any(1)
    return profile[~silent] if silent.any() else profile


def largest_gap(values: NDArray[np.float64]) -> int:
    """How many of the singular values come before their largest gap."""
    gaps = values[:-1] - values[1:] if len(values) > 1 else np.ones(1)
    return int(gaps.argmax()) + 1


def _lengths(projected: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the lengths of the columns, which are the singular values."""
    lengths: NDArray[np.float64] = np.linalg.norm(projected, axis=0)
    return lengths


def _inertia(rows: NDArray[np.float64], largest: int, seed: int) -> NDArray[np.float64]:
    """Within-cluster sums of squares for 1 to `largest` clusters; no more than different rows."""
    from sklearn.cluster import KMeans

    largest = min(largest, len(np.unique(rows, axis=0)))
    fits = [
        KMeans(k, n_init=4, random_state=seed % 2**32).fit(rows).inertia_
        for k in range(1, largest + 1)
    ]
    return np.asarray(fits)


def _elbow(inertia: NDArray[np.float64]) -> int:
    """The k farthest below the line from the first to the last point of the curve."""
    if len(inertia) < 3 or inertia[0] <= 0:
        return 1
    line = np.linspace(inertia[0], inertia[-1], len(inertia))
    return int((line - inertia).argmax()) + 1


def _gap(rows: NDArray[np.float64], inertia: NDArray[np.float64], seed: int) -> int:
    """Smallest k whose gap is within a standard error of the largest; references are uniform.

    Tibshirani et al. 2001 stop at the first k that k + 1 does not beat, which is 1 for groups that
    are all equally far apart: two clusters are then no better than one, but as many as groups are.
    """
    rng = np.random.default_rng(seed)
    low, high = rows.min(0), rows.max(0)
    tiny = 1e-12 * (1 + inertia[0])
    drawn = [rng.uniform(low, high, rows.shape) for _ in range(REFERENCES)]
    logs = [np.log(_inertia(reference, len(inertia), seed) + tiny) for reference in drawn]
    count = min(map(len, [inertia, *logs]))
    table = np.stack([log[:count] for log in logs])
    gap = table.mean(0) - np.log(inertia[:count] + tiny)
    spread = table.std(0) * np.sqrt(1 + 1 / REFERENCES)
    best = int(gap.argmax())
    return int((gap >= gap[best] - spread[best]).argmax()) + 1
