"""Methods that cluster clients by their distances only: an option of LCFL."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, fields, replace
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from umbel.checks import check, check_least
from umbel.flow import check_numbers
from umbel.server.clustering import Linkage, agglomerate, check_cut, first_alike, k_medoids
from umbel.server.numbering import in_order_of_appearance
from umbel.settings import Settings

Noise = Literal["join", "apart"]

UNTOLD = 2
"""The default number of medoids."""


@dataclass(frozen=True)
class Clusterer(Settings, ABC):
    """A method that clusters clients: called with distances (N, N), it returns labels (N,)."""

    @abstractmethod
    def __call__(self, distance: Tensor, seed: int) -> Tensor:
        """Cluster by distances (N, N): labels (N,) in 0 to K-1."""


@dataclass(frozen=True)
class KMedoids(Clusterer):
    """Clustering by k-medoids with FasterPAM, the best of 20 starts or more."""

    num_clusters: int | None = None  #: K; None: the number that the method gives, or 2

    def __post_init__(self) -> None:
        check_least(self, 1, "num_clusters")

    def __call__(self, distance: Tensor, seed: int) -> Tensor:
        return k_medoids(distance, self.num_clusters or UNTOLD, seed)


@dataclass(frozen=True)
class Agglomerative(Clusterer):
    """Agglomerative hierarchical clustering, cut at a number of clusters or at a distance."""

    linkage: Literal["complete", "average", "single"] = "average"  #: distance between clusters
    num_clusters: int | None = None  #: K; give either this or `threshold`
    threshold: float | None = None  #: clusters at this distance or farther are not merged

    def __post_init__(self) -> None:
        if self.num_clusters is not None or self.threshold is not None:
            check_cut(self.num_clusters, self.threshold)

    def __call__(self, distance: Tensor, seed: int) -> Tensor:  # noqa: ARG002
        return agglomerate(distance, self.linkage, self.num_clusters, self.threshold)


@dataclass(frozen=True)
class DBSCAN(Clusterer):
    """Density-based clustering: clients with enough others within `eps` (Ester et al. 1996)."""

    eps: float = 0.5  #: largest distance between neighbours
    min_samples: int = 2  #: fewest clients within `eps` of a dense place, itself included
    noise: Noise = "join"  #: clients in no cluster: to the nearest cluster, or each by itself

    def __post_init__(self) -> None:
        check(self.eps > 0, "eps", self.eps, "more than 0")
        check_least(self, 1, "min_samples")

    def __call__(self, distance: Tensor, seed: int) -> Tensor:  # noqa: ARG002
        import sklearn.cluster

        method = sklearn.cluster.DBSCAN(
            eps=self.eps, min_samples=self.min_samples, metric="precomputed"
        )
        fitted = method.fit(distance.double().numpy())
        return settled(torch.from_numpy(fitted.labels_).long(), distance, self.noise)


@dataclass(frozen=True)
class HDBSCAN(Clusterer):
    """Density-based clustering over all distance scales (Campello et al. 2013)."""

    min_cluster_size: int = 2  #: fewest clients of a cluster
    noise: Noise = "join"  #: clients in no cluster: to the nearest cluster, or each by itself

    def __post_init__(self) -> None:
        check_least(self, 2, "min_cluster_size")

    def __call__(self, distance: Tensor, seed: int) -> Tensor:  # noqa: ARG002
        if len(distance) < 2:
            return torch.zeros(len(distance), dtype=torch.long)
        import sklearn.cluster

        method = sklearn.cluster.HDBSCAN(
            min_cluster_size=min(self.min_cluster_size, len(distance)),
            metric="precomputed",
            copy=True,
        )
        fitted = method.fit(distance.double().numpy())
        return settled(torch.from_numpy(fitted.labels_).long(), distance, self.noise)


def clusters_by(clusterer: Clusterer, distance: Tensor, seed: int) -> Tensor:
    """Labels (N,) in 0 to K-1 by distances (N, N), where each of the K clusters has a member.

    Clusters are numbered in order of their first rows, whatever numbers a clusterer gives. Raises
    `UsageError` unless the clusterer returns N numbers of clusters.
    """
    labels: Any = clusterer(distance, seed)
    name, count = f"labels that {type(clusterer).__name__} returns", len(distance)
    shape = tuple(labels.shape) if isinstance(labels, Tensor) else (count,)
    check(shape == (count,), f"{name}: shape", shape, f"({count},), one for each client")
    check_numbers(labels, name, count, f"the clusters that {count} clients can form")
    return torch.from_numpy(in_order_of_appearance(labels.numpy()))


def parted(clusterer: Clusterer, num_clusters: int | None) -> tuple[Clusterer, int | None]:
    """Separate a clusterer from its number of clusters, which it or the caller states.

    Raises `UsageError` if both state different numbers, if a number is stated for a clusterer that
    finds it by itself, or if the clusterer needs a number and there is none.
    """
    defaults = {member.name: member.default for member in fields(clusterer)}
    # No such field, as in DBSCAN, or one that always has a number: the caller must give none.
    if defaults.get("num_clusters", MISSING) is not None:
        expected = f"allowed with {type(clusterer).__name__}, which takes no number of clusters"
        check(num_clusters is None, "num_clusters", num_clusters, expected)
        return clusterer, None
    own: int | None = vars(clusterer)["num_clusters"]
    agreed = own is None or num_clusters in (None, own)
    check(
        agreed,
        "clusterer.num_clusters",
        own,
        f"{num_clusters}, the value of num_clusters: give it once",
    )
    number = num_clusters if own is None else own
    if isinstance(clusterer, KMedoids):
        number = UNTOLD if number is None else number
    if isinstance(clusterer, Agglomerative):
        check_cut(number, clusterer.threshold)
    joined(clusterer, number)  # raises for numbers that it can't take
    return _told(clusterer, None), number


def joined(clusterer: Clusterer, num_clusters: int | None) -> Clusterer:
    """The clusterer with the number of clusters set, if it takes one."""
    return clusterer if num_clusters is None else _told(clusterer, num_clusters)


def _told(clusterer: Clusterer, num_clusters: int | None) -> Clusterer:
    settings: Any = clusterer
    told: Clusterer = replace(settings, num_clusters=num_clusters)
    return told


def settled(labels: Tensor, distance: Tensor, noise: Noise) -> Tensor:
    """Labels (N,) without -1: these clients join the nearest cluster, or form one each.

    The nearest cluster has the smallest mean distance to its members. If there is no cluster, all
    clients form one. Clients at no distance from each other are in one cluster.
    """
    first = first_alike(distance)
    labels = labels[first]
    outside, names = labels < 0, torch.unique(labels[labels >= 0])
    if noise == "apart":
        # Above all names of clusters, and equal for clients at no distance from each other.
        labels = torch.where(outside, len(labels) + first, labels)
    elif len(names):
        # (N, K) mean distance of each client to each cluster.
        means = torch.stack([distance[:, labels == name].mean(1) for name in names], dim=1)
        labels = torch.where(outside, names[means.argmin(1)], labels)
    return torch.from_numpy(in_order_of_appearance(labels.numpy()))


def medoids(distance: Tensor, labels: Tensor) -> Tensor:
    """Positions (K,) of the clusters' members with the smallest sum of distances to the others.

    The first of several such members: the two members of a pair, for example, have equal sums.
    """
    distance = (distance + distance.T) / 2  # a matrix product may round the two halves differently
    within = distance.where(labels[:, None] == labels[None, :], 0).sum(1).numpy()
    # By cluster, then by sum of distances, then by position: each cluster's first is its medoid.
    order = np.lexsort((np.arange(len(labels)), within, labels.numpy()))
    _, first = np.unique(labels.numpy()[order], return_index=True)
    return torch.from_numpy(order[first]).long()


CLUSTERERS: dict[str, type[Clusterer]] = {
    "k-medoids": KMedoids,
    "agglomerative": Agglomerative,
    "dbscan": DBSCAN,
    "hdbscan": HDBSCAN,
}


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
