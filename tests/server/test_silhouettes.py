"""The number of clusters by silhouette, on distances worked by hand."""

from __future__ import annotations

import pytest
import torch

from umbel.server.clusterers import best_by_silhouette


def apart(*places: float) -> torch.Tensor:
    points = torch.tensor(places, dtype=torch.double)
    return (points[:, None] - points[None]).abs()


def test_the_best_number_has_the_largest_mean_silhouette() -> None:
    labels, score = best_by_silhouette(apart(0, 1, 10, 11), "average", 3)
    assert labels[0] == labels[1] != labels[2] == labels[3]
    # Of 0: 1 from its own, 10.5 from the others: 9.5 / 10.5; of 1: 8.5 / 9.5; the others alike.
    assert score == pytest.approx((9.5 / 10.5 + 8.5 / 9.5) / 2)


def test_as_many_are_considered_as_are_allowed() -> None:
    pairs = apart(0, 1, 10, 11, 30, 31, 70, 71)
    found = [int(best_by_silhouette(pairs, "average", most)[0].max()) for most in (2, 3, 7)]
    assert found == [1, 2, 3]


def test_two_rows_are_one_cluster_and_equal_ones_are_one_too() -> None:
    assert best_by_silhouette(apart(0, 5), "average", 8)[0].tolist() == [0, 0]
    assert best_by_silhouette(apart(0), "average", 8)[0].tolist() == [0]
    labels, score = best_by_silhouette(apart(3, 3, 3, 3), "average", 8)
    assert labels.tolist() == [0, 0, 0, 0]
    assert score == 0
    labels, score = best_by_silhouette(apart(3, 3, 5, 3, 5), "average", 8)
    assert labels.tolist() == [0, 0, 1, 0, 1]
    assert score == 1
