from __future__ import annotations

from itertools import permutations
from typing import Literal, get_args

import kmedoids
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.cluster import hierarchy
from scipy.linalg import subspace_angles
from scipy.spatial.distance import cdist
from sklearn.cluster import AgglomerativeClustering
from sklearn.metrics import adjusted_rand_score

from umbel.checks import UsageError
from umbel.server.clustering import (
    SAMPLE,
    Metric,
    agglomerate,
    cosine_similarity,
    distances,
    inner_products,
    k_means,
    k_medoids,
    leading_projection,
    orthonormal_bases,
    principal_angles,
    projection_by,
    spectral,
)
from umbel.server.numbering import match_labels

POINTS = torch.tensor([[0.0], [0.1], [5.0], [5.1], [9.0], [9.1]])
TRUTH = [0, 0, 1, 1, 2, 2]


def apart(points: torch.Tensor) -> torch.Tensor:
    return distances(points, points, "l2")


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.manual_seed(0), dtype=torch.double)


def test_cosine_similarity_is_of_directions_and_zero_for_a_zero_row() -> None:
    rows = torch.tensor([[1.0, 0.0], [5.0, 5.0], [0.0, -2.0], [0.0, 0.0]])
    half = 0.5**0.5
    expected = [[1, half, 0, 0], [half, 1, -half, 0], [0, -half, 1, 0], [0, 0, 0, 0]]
    torch.testing.assert_close(cosine_similarity(rows), torch.tensor(expected).double())


@pytest.mark.parametrize("size", [7, 33, 1000])
@pytest.mark.parametrize("block", [10, 2**20])
def test_no_cosine_is_beyond_one_however_sums_are_rounded(
    size: int, block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("umbel.server.clustering.BLOCK_VALUES", block)
    found = [cosine_similarity(sign * random(1, size).repeat(9, 1)) for sign in (1, 3.7)]
    rows = random(1, size).repeat(8, 1)
    rows[1::2] *= -3
    assert all(float(each.abs().max()) <= 1 for each in [*found, cosine_similarity(rows)])


@pytest.mark.parametrize("shape", [(3, 1), (7, 40_000), (300, 5_001), (1, 200_000)])
def test_inner_products_are_those_of_a_copy_in_double_precision(shape: tuple[int, int]) -> None:
    rows = random(*shape).float()
    whole = rows.double().numpy()
    torch.testing.assert_close(inner_products(rows), torch.from_numpy(whole @ whole.T))
    others = random(2, shape[1]).float()
    expected = whole @ others.double().numpy().T
    torch.testing.assert_close(inner_products(rows, others), torch.from_numpy(expected))
    assert inner_products(rows[:0]).shape == (0, 0)


@pytest.mark.parametrize("block", [100, 2**20])
def test_cosines_are_those_of_numpy_whether_a_block_holds_all_values_or_not(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("umbel.server.clustering.BLOCK_VALUES", block)
    rows = random(6, 700).float()
    rows[2] = 0
    rows[3] *= 1e-20
    unit = rows.double().numpy()
    unit = unit / np.maximum(np.linalg.norm(unit, axis=1, keepdims=True), 1e-12)
    torch.testing.assert_close(cosine_similarity(rows), torch.from_numpy(unit @ unit.T))
    torch.testing.assert_close(
        distances(rows, rows[:2], "cosine"), torch.from_numpy(1 - unit @ unit[:2].T)
    )


@pytest.mark.parametrize("shape", [(9, 70_000), (2_000, 12)])
def test_projections_are_those_of_a_singular_value_decomposition(shape: tuple[int, int]) -> None:
    rows = random(*shape).float()
    u, sigma, _ = np.linalg.svd(rows.double().numpy(), full_matrices=False)
    found = leading_projection(rows, 4, seed=0)
    if shape[0] < shape[1]:
        assert torch.equal(found, projection_by(inner_products(rows), 4))
    signs = np.sign((found.numpy() * u[:, :4]).sum(0))
    np.testing.assert_allclose(found, u[:, :4] * sigma[:4] * signs, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("seed", range(3))
def test_separate_clusters_are_found_by_every_method(seed: int) -> None:
    for labels in (
        k_means(POINTS, 3, seed),
        k_medoids(apart(POINTS), 3, seed),
        agglomerate(apart(POINTS), "complete", num_clusters=3),
        agglomerate(apart(POINTS), "average", threshold=2.0),
        agglomerate(apart(POINTS), "single", threshold=2.0),
        agglomerate(apart(POINTS), "ward", num_clusters=3),
    ):
        assert labels.dtype == torch.int64
        assert adjusted_rand_score(TRUTH, labels) == 1.0


def test_clustering_is_a_function_of_its_seed() -> None:
    rows = torch.randn(30, 4, generator=torch.manual_seed(0))
    assert torch.equal(k_means(rows, 4, 2**62), k_means(rows, 4, 2**62))
    matrix = apart(rows)
    assert torch.equal(k_medoids(matrix, 4, 2**62), k_medoids(matrix, 4, 2**62))


@pytest.mark.parametrize(
    ("metric", "name"), [("l1", "cityblock"), ("l2", "euclidean"), ("cosine", "cosine")]
)
def test_distances_are_those_of_scipy(metric: Literal["l1", "l2", "cosine"], name: str) -> None:
    rows, others = random(7, 5), random(3, 5) + 1
    expected = cdist(rows.numpy(), others.numpy(), name)
    torch.testing.assert_close(distances(rows, others, metric), torch.from_numpy(expected))


def test_small_distances_are_exact_and_zero_rows_are_far_from_everything() -> None:
    far = torch.tensor([[1e6, 0.0], [1e6, 1e-3]], dtype=torch.double)
    assert distances(far, far, "l2")[0, 1] == pytest.approx(1e-3)
    zero = torch.zeros(1, 2)
    assert distances(zero, torch.ones(1, 2), "cosine").tolist() == [[1.0]]


@pytest.mark.parametrize("block", [100, 2**20])
def test_cosine_distances_are_in_0_to_2_whatever_rounding_does(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("umbel.server.clustering.BLOCK_VALUES", block)
    rows = random(20, 700)
    apart = distances(torch.cat([rows, -rows]), rows, "cosine")
    assert apart.min() >= 0
    assert apart.max() <= 2


@pytest.mark.parametrize("cut", [{"num_clusters": 4}, {"threshold": 3.0}], ids=str)
def test_wards_linkage_is_that_of_the_points(cut: dict[str, float]) -> None:
    points = random(30, 3)
    number, height = cut.get("num_clusters"), cut.get("threshold")
    of_points = AgglomerativeClustering(
        n_clusters=number, distance_threshold=height, linkage="ward"
    ).fit(points.numpy())
    found = agglomerate(apart(points), "ward", None if number is None else int(number), height)
    assert found.dtype == torch.int64
    assert adjusted_rand_score(found, of_points.labels_) == 1.0
    tree = hierarchy.linkage(points.numpy(), "ward")
    scipys = hierarchy.fcluster(tree, number or height, "maxclust" if number else "distance")
    assert adjusted_rand_score(found, scipys) == 1.0


def test_what_merges_at_the_very_threshold_stays_apart_as_scikit_learn_has_it() -> None:
    points = torch.tensor([[0.0], [2.0], [10.0], [12.0], [20.0], [21.0]]).double()
    for linkage in ("ward", "average"):
        found = agglomerate(apart(points), linkage, threshold=2.0)
        cut = AgglomerativeClustering(n_clusters=None, distance_threshold=2.0, linkage=linkage)
        assert adjusted_rand_score(found, cut.fit(points.numpy()).labels_) == 1.0
        assert len(set(found.tolist())) == 5


def test_principal_angles_are_those_of_scipy() -> None:
    vectors, others = random(4, 9, 3), random(3, 9, 5) + 0.3
    bases, theirs = orthonormal_bases(vectors), orthonormal_bases(others)
    angles = [[np.degrees(subspace_angles(a, b)) for b in others.numpy()] for a in vectors.numpy()]
    smallest = torch.tensor([[min(found) for found in row] for row in angles])
    total = torch.tensor([[sum(found) for found in row] for row in angles])
    torch.testing.assert_close(principal_angles(bases, theirs, "smallest"), smallest)
    torch.testing.assert_close(principal_angles(bases, theirs, "sum"), total)


def test_dependent_and_missing_vectors_add_no_angle() -> None:
    one, other = random(6, 2), random(6, 2) @ torch.tensor([[1.0, 2.0], [3.0, 1.0]]).double()
    twice = torch.stack([torch.cat([one, one], 1), torch.cat([other, torch.zeros(6, 2)], 1)])
    bases = orthonormal_bases(twice)
    assert (bases != 0).any(1).sum(1).tolist() == [2, 2]
    # The spans are equal: all angles are 0, to the rounding of an arc cosine near 1.
    assert principal_angles(bases, bases, "sum").max() < 1e-4
    nothing = torch.zeros(1, 6, 4).double()
    assert principal_angles(bases, orthonormal_bases(nothing), "sum").tolist() == [[90.0], [90.0]]
    assert principal_angles(nothing, bases, "smallest").tolist() == [[90.0, 90.0]]


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
        k_medoids(apart(POINTS), 7, 0)
    for rows in (0, 1):
        with pytest.raises(UsageError, match="num_clusters: 7 is not in 1 to 1"):
            agglomerate(torch.zeros(rows, rows), "average", 7)


def crossed() -> torch.Tensor:
    """Distances of three rows and columns of clients, between centres of columns and of rows.

    Clients 9 to 44 are nearest to the centres of their row, which are the last nine; a start that
    comes to the centres of all columns is stuck: to leave one for that of a row does not pay.
    """
    clients, centres = torch.arange(36)[:, None], torch.arange(9) % 3
    distance = torch.full((54, 54), 3.0).fill_diagonal_(0)
    distance[9:45, :9][clients % 3 == centres] = 1.2
    distance[9:45, 45:][clients // 12 == centres] = 1.0
    return distance.minimum(distance.T)


def test_of_ten_starts_on_a_sample_the_best_one_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [place // 12 for place in range(36)]
    monkeypatch.setattr("umbel.server.clustering.SAMPLE", 43)
    found = [k_medoids(crossed(), 3, seed)[9:45] for seed in range(10)]
    assert all(adjusted_rand_score(rows, labels) == 1.0 for labels in found)


labels = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=20)


@given(pairs=labels)
def test_renaming_keeps_most_clients_where_they_were(pairs: list[tuple[int, int]]) -> None:
    new, old = torch.tensor(pairs).T
    matched = match_labels(new, old, 4)
    best = max(int((torch.tensor(names)[new] == old).sum()) for names in permutations(range(4)))
    assert int((matched == old).sum()) == best
    assert adjusted_rand_score(new, matched) == 1.0


@pytest.mark.parametrize("name", ["new", "old"])
@pytest.mark.parametrize("wrong", [[0, 2], [-1, 0]])
def test_labels_that_are_no_clusters_are_refused_by_name(name: str, wrong: list[int]) -> None:
    given = {"new": torch.tensor([0, 1]), "old": torch.tensor([1, 0]), name: torch.tensor(wrong)}
    with pytest.raises(UsageError, match=f"{name}: -?[12] is not in 0 to 1, the numbers of clust"):
        match_labels(**given, num_clusters=2)


@given(st.integers(2, 12), st.integers(2, 12), st.integers(1, 12), st.integers(0, 9))
def test_projections_are_those_of_a_dense_svd(n: int, d: int, rank: int, seed: int) -> None:
    rows = torch.randn(n, d, generator=torch.manual_seed(seed), dtype=torch.double)
    found = leading_projection(rows, rank, seed=0)
    u, sigma, _ = torch.linalg.svd(rows, full_matrices=False)
    expected = (u * sigma)[:, : min(rank, n, d)]
    assert found.shape == expected.shape
    # Singular vectors have no sign of their own.
    torch.testing.assert_close(found @ found.T, expected @ expected.T, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(found.norm(dim=0), expected.norm(dim=0), rtol=1e-6, atol=1e-6)


def test_large_matrices_go_through_a_randomised_svd(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = random(40, 3) @ random(3, 60) + 0.01 * random(40, 60)
    exact = leading_projection(rows, 3, seed=0)
    monkeypatch.setattr("umbel.server.clustering.LARGEST_GRAM", 20)
    found = leading_projection(rows, 3, seed=0)
    torch.testing.assert_close(found.abs(), exact.abs(), rtol=1e-6, atol=1e-6)


def test_spectral_clustering_finds_groups_that_differ_in_few_of_many_directions() -> None:
    centres = torch.eye(3, 500, dtype=torch.double).repeat_interleave(6, 0) * 4
    rows = centres + 0.3 * torch.randn(18, 500, generator=torch.manual_seed(3)).double()
    truth = torch.arange(3).repeat_interleave(6).tolist()
    assert adjusted_rand_score(truth, spectral(rows, 3, seed=0).tolist()) == 1.0


def test_many_rows_are_clustered_as_well_from_a_sample() -> None:
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 3, 3 * SAMPLE)
    points = torch.from_numpy(10 * np.eye(3)[groups] + rng.normal(size=(len(groups), 3)))
    labels = k_medoids(torch.cdist(points, points), 3, seed=0)
    assert adjusted_rand_score(groups, labels) == 1


@pytest.mark.parametrize("linkage", ["average", "ward"])
@pytest.mark.parametrize("rows", [2, 3])
def test_no_tree_is_cut_into_more_clusters_than_rows(
    rows: int, linkage: Literal["average", "ward"]
) -> None:
    with pytest.raises(UsageError, match=f"num_clusters: 5 is not in 1 to {rows}"):
        agglomerate(torch.zeros(rows, rows), linkage, num_clusters=5)


@pytest.mark.parametrize("kinds", [1, 2])
def test_equal_rows_are_in_one_cluster_however_many_clusters_are_asked_for(kinds: int) -> None:
    rows = random(kinds, 50).float().repeat(5, 1)
    truth = list(range(kinds)) * 5
    assert spectral(rows, 3, seed=0).tolist() == truth
    for metric in get_args(Metric):
        distance = distances(rows, rows, metric)
        for labels in (
            k_medoids(distance, 3, seed=0),
            agglomerate(distance, "average", 3),
            agglomerate(distance, "ward", 3),
        ):
            assert labels.tolist() == truth
    noisy = rows.double() * (1 + 1e-15 * random(len(rows), 50))
    assert k_means(noisy, 3, seed=0).tolist() == truth
    assert projection_by(inner_products(rows), 3)[:, kinds:].abs().max() == 0


def test_equal_rows_stay_together_where_two_clusters_are_equally_near() -> None:
    middle = torch.zeros(20, 1, dtype=torch.double)
    rows = torch.cat([torch.tensor([[-1.0]]), middle, torch.tensor([[1.0]])])
    for seed in range(5):
        noisy = rows + 1e-12 * torch.randn(rows.shape, generator=torch.manual_seed(seed)).double()
        for labels in (k_means(noisy, 2, seed), k_medoids(apart(noisy), 2, seed)):
            assert len(set(labels[1:-1].tolist())) == 1


@pytest.mark.thorough
def test_k_medoids_loses_no_more_than_the_package_it_took_the_place_of() -> None:
    rng = np.random.default_rng(0)
    for number in range(200):
        size = int(rng.integers(4, 60))
        count = int(rng.integers(1, min(9, size)))
        points = rng.normal(size=(size, 3)) + 4 * (number % 2) * rng.integers(0, 4, (size, 1))
        matrix = cdist(points, points) if number % 3 else rng.random((size, size))
        matrix = np.triu(matrix, 1) + np.triu(matrix, 1).T
        theirs = min(kmedoids.fasterpam(matrix, count, random_state=s).loss for s in range(10))
        labels = k_medoids(torch.from_numpy(matrix), count, seed=number).numpy()
        within = [matrix[np.ix_(labels == k, labels == k)] for k in range(count)]
        assert sum(block.sum(1).min() for block in within) <= theirs * (1 + 1e-9)


def test_small_differences_beside_large_values_are_no_rounding_errors() -> None:
    times = 1.7e9 + torch.tensor([[0.0], [100.0], [0.0]], dtype=torch.double)
    assert k_means(times, 2, seed=0).tolist() == [0, 1, 0]


def test_clusters_are_numbered_in_order_of_their_first_rows() -> None:
    points = POINTS[[4, 0, 2, 1, 5, 3]]
    for labels in (
        k_means(points, 3, 0),
        k_medoids(apart(points), 3, 0),
        agglomerate(apart(points), "complete", 3),
        agglomerate(apart(points), "ward", 3),
    ):
        assert labels.tolist() == [0, 1, 2, 1, 0, 2]


def test_angles_within_rounding_errors_are_zero() -> None:
    bases = orthonormal_bases(random(6, 5, 3))
    assert not principal_angles(bases, bases, "smallest").any()
