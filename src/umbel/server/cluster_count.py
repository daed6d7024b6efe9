"""Estimates of the number of clusters, from the vectors by which clients are clustered.

The verdict comes from `umbel.server.cluster_test`. The other estimates are those of Kim et al.
2024, Appendix G: the number of singular values of the gradient profile matrix before their largest
gap, and the elbow and the gap statistic of the vectors projected on these dimensions.
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
"""Largest number of clusters that is considered."""

SURE, UNSURE = 0.01, 0.2
"""Above the first chance, several clusters are unsure; above the second, one is likely."""

ROUNDING = 1e-12
"""An inertia of one cluster below this share of the sum of squares is a rounding error."""

REFERENCES = 20
"""Number of uniform reference sets of the gap statistic."""


@dataclass(frozen=True)
class ClusterCount:
    """The likely number of clusters: a verdict, three other estimates, and their data.

    The other estimates are those of Kim et al. 2024, Appendix G.
    """

    #: largest singular values of the vectors, in descending order, 21 at most
    singular_values: NDArray[np.float64]
    rank: int  #: s, the number of singular values before their largest gap
    inertia: NDArray[np.float64]  #: inertia of k-means with k = 1, 2, ... clusters, in s dimensions
    elbow: int  #: the k at the elbow of the inertia
    gap_statistic: int  #: the k of the gap statistic (Tibshirani et al. 2001)
    clusters: int  #: the verdict; 1: clients do not seem to form groups
    #: share of simulated federations without groups that look as clearly grouped as these clients
    chance: float

    @property
    def agreeing(self) -> tuple[str, ...]:
        """The other estimates that agree with the verdict's number."""
        others = {
            "the largest gap": self.rank,
            "the elbow": self.elbow,
            "the gap statistic": self.gap_statistic,
        }
        return tuple(name for name, number in others.items() if number == self.clusters)

    @property
    def certainty(self) -> str:
        """The certainty of the verdict: "sure", "likely" or "unsure"."""
        if self.clusters == 1:
            return "likely" if self.chance > UNSURE else "unsure"
        if self.chance > SURE:
            return "unsure"
        return "sure" if len(self.agreeing) >= 2 else "likely"

    @property
    def verdict(self) -> str:
        """The number of clusters, its certainty, and the reasons, in two sentences."""
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
    """Estimate the number of clusters of the clients with these vectors (M, D).

    >>> import torch
    >>> middles = torch.tensor([[4.0, 0.0], [0.0, 4.0]]).repeat_interleave(10, 0)
    >>> noise = torch.randn(20, 2, generator=torch.Generator().manual_seed(0))
    >>> umbel.count_clusters(middles + 0.3 * noise).clusters
    2

    For a finished run, pass `umbel.load(folder).profile`. Clients whose vector is NaN are left out.
    The verdict is based on a test against simulated clients without groups, as in SigClust (Liu et
    al. 2008). Raises `UsageError` for fewer than three clients.
    """
    profile = known(profile)
    size = len(profile)
    check(size >= 3, "clients", size, "3 or more, to count clusters among them")
    projected = leading_projection(profile, LARGEST + 1, seed).numpy()
    values = _lengths(projected)
    # s dimensions: G has about s leading singular values if clients form s groups.
    rank = largest_gap(values)
    rows = projected[:, :rank]
    largest = min(LARGEST, size - 1)
    inertia = _inertia(rows, largest, seed)
    elbow, gap = _elbow(inertia, float((rows**2).sum())), _gap(rows, inertia, seed)
    return ClusterCount(values, rank, inertia, elbow, gap, *judge(profile, LARGEST, seed))


def singular_values(profile: Tensor, seed: int = 0) -> NDArray[np.float64]:
    """Return the largest singular values of clients' vectors (M, D), in descending order."""
    return _lengths(leading_projection(known(profile), LARGEST + 1, seed).numpy())


def known(profile: Tensor) -> Tensor:
    """The vectors (N, D) of the clients that have one; the vectors of others are NaN."""
    silent = profile.isnan().any(1)
    return profile[~silent] if silent.any() else profile


def largest_gap(values: NDArray[np.float64]) -> int:
    """The number of singular values before their largest gap."""
    gaps = values[:-1] - values[1:] if len(values) > 1 else np.ones(1)
    return int(gaps.argmax()) + 1


def _lengths(projected: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the lengths of the columns, which are the singular values."""
    lengths: NDArray[np.float64] = np.linalg.norm(projected, axis=0)
    return lengths


def _inertia(rows: NDArray[np.float64], largest: int, seed: int) -> NDArray[np.float64]:
    """Within-cluster sums of squares for 1 to `largest` clusters, at most one per distinct row."""
    from sklearn.cluster import KMeans

    largest = min(largest, len(np.unique(rows, axis=0)))
    fits = [
        KMeans(k, n_init=4, random_state=seed % 2**32).fit(rows).inertia_
        for k in range(1, largest + 1)
    ]
    return np.asarray(fits)


def _elbow(inertia: NDArray[np.float64], squares: float) -> int:
    """The k farthest below the line from the first to the last point of the curve.

    It is 1 if the rows, of this sum of `squares`, differ by rounding errors only.
    """
    if len(inertia) < 3 or inertia[0] <= ROUNDING * squares:
        return 1
    # The first and the last point of the curve are on the line; the elbow is farthest below it.
    line = np.linspace(inertia[0], inertia[-1], len(inertia))
    return int((line - inertia).argmax()) + 1


def _gap(rows: NDArray[np.float64], inertia: NDArray[np.float64], seed: int) -> int:
    """Smallest k whose gap is within a standard error of the largest; references are uniform.

    Tibshirani et al. 2001 stop at the first k for which k + 1 is not better. For groups at equal
    distances that is k = 1: two clusters are then no better than one, although one cluster for each
    group is better.
    """
    rng = np.random.default_rng(seed)
    # References: as many rows, uniform in the box that the rows fill.
    low, high = rows.min(0), rows.max(0)
    tiny = 1e-12 * (1 + inertia[0])
    drawn = [rng.uniform(low, high, rows.shape) for _ in range(REFERENCES)]
    logs = [np.log(_inertia(reference, len(inertia), seed) + tiny) for reference in drawn]
    # A set with few distinct rows has a shorter curve: compare as far as all curves go.
    count = min(map(len, [inertia, *logs]))
    table = np.stack([log[:count] for log in logs])
    # Gap(k) = mean over references of log W*_k - log W_k, s_k = sd_k sqrt(1 + 1/B)
    gap = table.mean(0) - np.log(inertia[:count] + tiny)
    spread = table.std(0) * np.sqrt(1 + 1 / REFERENCES)
    best = int(gap.argmax())
    return int((gap >= gap[best] - spread[best]).argmax()) + 1
