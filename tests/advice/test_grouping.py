"""As many groups are found as there are, where they lie apart."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.metrics import adjusted_rand_score

from umbel.advice.grouping import best, groupings
from umbel.advice.split_half_test import Halves


def planted(groups: int, seed: int, apart: float = 2.0) -> tuple[Halves, NDArray[np.int64]]:
    """40 clients of 10 to 60 examples in groups, by descriptors of three numbers."""
    rng = np.random.default_rng(seed)
    of = rng.permutation(np.arange(40) % groups)
    centres = apart * rng.normal(size=(groups, 3))
    counts = rng.integers(5, 30, (2, 40))
    noise = rng.normal(size=(2, 40, 3)) / np.sqrt(counts)[..., None]
    return Halves(means=centres[of] + noise, counts=counts), of


@pytest.mark.parametrize("groups", [1, 3])
def test_the_planted_groups_are_found(groups: int) -> None:
    halves, of = planted(groups, seed=groups)
    found = best(groupings(halves, seed=0))
    assert found.num_groups == groups
    assert adjusted_rand_score(of, found.labels) == 1


def test_there_is_a_grouping_for_each_number_and_its_clusters_come_in_order() -> None:
    halves, _ = planted(3, seed=3)
    found = groupings(halves, seed=0)
    assert [each.num_groups for each in found] == list(range(1, len(found) + 1))
    for each in found:
        firsts = [int(np.flatnonzero(each.labels == k)[0]) for k in range(each.num_groups)]
        assert firsts == sorted(firsts)


def test_noise_of_another_size_than_assumed_makes_no_groups() -> None:
    halves, _ = planted(1, seed=5)
    louder = Halves(means=halves.means * 3, counts=halves.counts)
    assert best(groupings(louder, seed=0)).num_groups == 1


@pytest.mark.filterwarnings("error")
def test_there_are_no_more_groups_than_places_where_clients_lie() -> None:
    halves, of = planted(3, seed=3)
    places = 5 * np.eye(3)[of]
    means = np.stack([places, places]) + 1e-13 * np.random.default_rng(0).normal(size=(40, 3))
    found = groupings(Halves(means=means, counts=halves.counts), seed=0)
    assert [each.num_groups for each in found] == [1, 2, 3]
    assert adjusted_rand_score(of, best(found).labels) == 1
