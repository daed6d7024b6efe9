from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from umbel.checks import UsageError
from umbel.server.clusterers import (
    CLUSTERERS,
    DBSCAN,
    HDBSCAN,
    Agglomerative,
    Clusterer,
    KMedoids,
    clusters_by,
    medoids,
    settled,
)
from umbel.server.clustering import distances

POINTS = torch.tensor([[0.0], [0.1], [0.2], [5.0], [5.1], [5.3], [9.0], [9.1], [9.3]])
DISTANCE = distances(POINTS, POINTS, "l2")
METHODS: list[Clusterer] = [
    KMedoids(3),
    Agglomerative(num_clusters=3),
    Agglomerative("single", threshold=1.0),
    Agglomerative("complete", threshold=1.0),
    DBSCAN(eps=0.5),
    HDBSCAN(min_cluster_size=3),
]


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_separate_groups_are_found(method: Clusterer) -> None:
    found = method(DISTANCE, seed=0)
    assert [len(set(found[i : i + 3].tolist())) for i in (0, 3, 6)] == [1, 1, 1]
    assert len(set(found.tolist())) == 3


def test_every_clusterer_is_registered() -> None:
    assert {type(method) for method in METHODS} == set(CLUSTERERS.values())


@pytest.mark.parametrize("method", [DBSCAN(eps=0.5), HDBSCAN(min_cluster_size=3)], ids=str)
def test_noise_joins_the_nearest_cluster_or_is_kept_apart(method: DBSCAN | HDBSCAN) -> None:
    points = torch.cat([POINTS, torch.tensor([[6.5], [30.0]])])
    distance = distances(points, points, "l2")
    joined = method(distance, seed=0)
    assert joined[9] == joined[3]
    assert joined[10] == joined[6]
    apart = type(method)(noise="apart")
    labels = settled(torch.tensor([0, -1, 0, -1]), DISTANCE[:4, :4], apart.noise)
    assert labels.tolist() == [0, 1, 0, 2]
    assert settled(torch.tensor([-1, -1]), torch.zeros(2, 2), "join").tolist() == [0, 0]


def test_the_medoid_is_nearest_to_the_other_members() -> None:
    labels = torch.tensor([1, 1, 1, 0, 0, 0, 2, 2, 2])
    assert medoids(DISTANCE, labels).tolist() == [4, 1, 7]


def test_the_first_of_a_pair_is_its_medoid_however_distances_were_rounded() -> None:
    pairs = torch.tensor([0, 1, 1, 0])
    for seed in range(20):
        points = torch.randn(4, 50, generator=torch.manual_seed(seed))
        distance = distances(points, points, "cosine")
        rounded = distance + 1e-16 * torch.randn(4, 4, generator=torch.manual_seed(seed))
        assert medoids(rounded.fill_diagonal_(0), pairs).tolist() == [0, 1]


@given(st.integers(1, 9), st.integers(0, 5))
def test_labels_are_numbered_without_gaps(size: int, seed: int) -> None:
    points = torch.randn(size, 2, generator=torch.manual_seed(seed))
    distance = distances(points, points, "l2")
    apart = DBSCAN(0.3, noise="apart")
    for method in (KMedoids(1), Agglomerative(threshold=0.5), apart, HDBSCAN()):
        found = method(distance, seed)
        assert set(found.tolist()) == set(range(int(found.max()) + 1))


def test_settings_that_make_no_sense_are_refused() -> None:
    for make in (
        lambda: KMedoids(0),
        lambda: Agglomerative()(torch.zeros(2, 2), 0),
        lambda: Agglomerative(num_clusters=2, threshold=1.0),
        lambda: DBSCAN(eps=0.0),
        lambda: DBSCAN(min_samples=0),
        lambda: HDBSCAN(min_cluster_size=1),
    ):
        with pytest.raises(UsageError):
            make()


@dataclass(frozen=True)
class Returning(Clusterer):
    """A clusterer of a user's that returns this."""

    labels: Any

    def __call__(self, distance: torch.Tensor, seed: int) -> Any:  # noqa: ARG002
        return self.labels


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (torch.tensor([0, -1, 1]), "-1 is not in 0 to 2"),
        (torch.tensor([0, 3, 1]), "3 is not in 0 to 2"),
        (torch.tensor([0, 1, 1], dtype=torch.int32), "'torch.int32' is not a tensor of type"),
        (torch.zeros(3).numpy(), "'ndarray' is not a tensor of type"),
        ([0, 1, 1], "'list' is not a tensor of type"),
        (torch.tensor([0, 1]), r"shape: \(2,\) is not \(3,\), one for each client"),
        (torch.tensor(0), r"shape: \(\) is not \(3,\), one for each client"),
    ],
    ids=str,
)
def test_labels_of_another_form_are_refused_by_the_clusterers_name(labels: Any, said: str) -> None:
    with pytest.raises(UsageError, match=f"labels that Returning returns.*{said}"):
        clusters_by(Returning(labels), torch.zeros(3, 3), 0)


def test_clusters_are_numbered_in_order_whatever_numbers_a_clusterer_gives() -> None:
    labels = clusters_by(Returning(torch.tensor([2, 0, 2])), torch.zeros(3, 3), 0)
    assert labels.tolist() == [0, 1, 0]


@pytest.mark.parametrize("seed", range(30))
def test_clients_at_no_distance_are_in_one_cluster(seed: int) -> None:
    """Whatever the number of clusters, and although rounding puts them a little apart."""
    rng = np.random.default_rng(seed)
    points = rng.integers(0, 4, (rng.integers(3, 14), rng.integers(1, 3))).astype(float)
    points[:2] = [[0], [3]]
    rows = torch.from_numpy(points + 1e-9 * rng.standard_normal(points.shape))
    number = min(len(rows), 5)
    for method in (
        KMedoids(number),
        Agglomerative(num_clusters=number),
        Agglomerative("complete", num_clusters=number),
        DBSCAN(0.5, 3, noise="apart"),
        DBSCAN(0.5, 3),
        HDBSCAN(3, noise="apart"),
        HDBSCAN(3),
    ):
        found = clusters_by(method, distances(rows, rows, "l2"), seed).tolist()
        of_each = dict(zip(map(tuple, points.tolist()), found, strict=True))
        assert [of_each[tuple(point)] for point in points.tolist()] == found
