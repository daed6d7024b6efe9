"""Clusters drawn at random: their sizes, who draws them, and a round worked by hand."""

from __future__ import annotations

import pytest
import torch

from tests.federations import answered, context, requested
from umbel.algorithms import RandomClusters
from umbel.algorithms.base import Known, Setup, State
from umbel.checks import UsageError
from umbel.client.layout import Layout
from umbel.testing import mlp


def setup(num_clients: int, seed: int = 0) -> Setup:
    layout: Layout = mlp().layout
    return Setup(
        num_clients=num_clients,
        num_rounds=1,
        participation=1.0,
        layout=layout,
        new_model=lambda number: torch.full((3,), float(number)),
        seed=seed,
    )


def sizes_of(state: State) -> list[int]:
    return torch.bincount(state.labels).tolist()


def test_clusters_have_the_sizes_that_are_asked_for() -> None:
    assert sizes_of(RandomClusters(sizes=(5, 3, 1)).init(setup(9))) == [5, 3, 1]
    assert sizes_of(RandomClusters(num_clusters=4).init(setup(10))) == [3, 3, 2, 2]


def test_the_seed_says_who_is_in_which_cluster_and_all_begin_alike() -> None:
    method = RandomClusters(sizes=(10, 10))
    first, again, other = (method.init(setup(20, seed)).labels.tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert first != sorted(first)
    assert method.init(setup(20)).models.tolist() == [[0.0] * 3] * 2


def test_each_cluster_moves_by_the_mean_of_its_own_clients() -> None:
    state = State(torch.tensor([[1.0], [1.0]]), torch.tensor([0, 1, 0]))
    flow = RandomClusters(sizes=(2, 1)).round(state, context([0, 1, 2], 3))
    requested(flow)
    after = answered(flow, [0, 1, 2], update=[[4.0], [10.0], [0.0]], num_examples=[1, 5, 3])
    assert after.models.tolist() == [[2.0], [11.0]]


def test_sizes_that_are_not_those_of_all_clients_are_refused() -> None:
    with pytest.raises(UsageError, match=r"algorithm.sizes: .* the number of clients, 9"):
        RandomClusters(sizes=(5, 3)).check(Known(1.0, num_clients=9))
    with pytest.raises(UsageError, match=r"sizes: .* 1 or more each"):
        RandomClusters(sizes=(5, 0))
    with pytest.raises(UsageError, match=r"at most the number of clients, 3"):
        RandomClusters(num_clusters=4).check(Known(1.0, num_clients=3))
