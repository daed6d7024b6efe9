from __future__ import annotations

from itertools import permutations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score

from umbel.checks import UsageError
from umbel.clustering import agglomerate, cosine_similarity, k_means, k_medoids, match_labels

POINTS = torch.tensor([[0.0], [0.1], [5.0], [5.1], [9.0], [9.1]])
TRUTH = [0, 0, 1, 1, 2, 2]


def distances(points: torch.Tensor) -> torch.Tensor:
    return torch.cdist(points, points)


def test_cosine_similarity_is_of_directions_and_zero_for_a_zero_row() -> None:
    rows = torch.tensor([[1.0, 0.0], [5.0, 5.0], [0.0, -2.0], [0.0, 0.0]])
    half = 0.5**0.5
    expected = [[1, half, 0, 0], [half, 1, -half, 0], [0, -half, 1, 0], [0, 0, 0, 0]]
    torch.testing.assert_close(cosine_similarity(rows), torch.tensor(expected).double())


@pytest.mark.parametrize("seed", range(3))
def test_separate_clusters_are_found_by_every_method(seed: int) -> None:
    for labels in (
        k_means(POINTS, 3, seed),
        k_medoids(distances(POINTS), 3, seed),
        agglomerate(distances(POINTS), "complete", num_clusters=3),
        agglomerate(distances(POINTS), "average", threshold=2.0),
        agglomerate(distances(POINTS), "single", threshold=2.0),
    ):
        assert labels.dtype == torch.int64
        assert adjusted_rand_score(TRUTH, labels) == 1.0


def test_clustering_is_a_function_of_its_seed() -> None:
    rows = torch.randn(30, 4, generator=torch.manual_seed(0))
    assert torch.equal(k_means(rows, 4, 2**62), k_means(rows, 4, 2**62))
    apart = distances(rows)
    assert torch.equal(k_medoids(apart, 4, 2**62), k_medoids(apart, 4, 2**62))


def test_k_medoids_finds_ideal_blocks() -> None:
    truth = torch.arange(40) % 4
    blocks = (truth[:, None] != truth[None]).float()
    found = [k_medoids(blocks, 4, seed) for seed in range(20)]
    assert all(adjusted_rand_score(truth, labels) == 1.0 for labels in found)


def test_a_cut_is_at_a_number_or_at_a_distance() -> None:
    one = torch.zeros(1, 1)
    assert agglomerate(one, "complete", threshold=1.0).tolist() == [0]
    with pytest.raises(UsageError, match="exactly one of the two"):
        agglomerate(one, "complete")
    with pytest.raises(UsageError, match="exactly one of the two"):
        agglomerate(one, "complete", 1, 1.0)


def test_more_clusters_than_rows_are_refused() -> None:
    with pytest.raises(UsageError, match="num_clusters: 7 is not in 1 to 6"):
        k_means(POINTS, 7, 0)
    with pytest.raises(UsageError, match="num_clusters: 7 is not in 1 to 6"):
        k_medoids(distances(POINTS), 7, 0)


labels = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20)


@given(pairs=labels)
def test_renaming_keeps_most_clients_where_they_were(pairs: list[tuple[int, int]]) -> None:
    new, old = torch.tensor(pairs).T
    matched = match_labels(new, old, 4)
    best = max(int((torch.tensor(names)[new] == old).sum()) for names in permutations(range(4)))
    assert int((matched == old).sum()) == best
    assert adjusted_rand_score(new, matched) == 1.0
