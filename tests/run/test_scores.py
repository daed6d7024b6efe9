from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from torch import nn

from tests.federations import blobs, mlp
from umbel.algorithms import FedAvg, FedEM
from umbel.algorithms.mixing import MixtureState
from umbel.client.net import Net
from umbel.client.objectives import BINARY
from umbel.data.federation import Federation
from umbel.engines import EngineSettings, Sequential
from umbel.flow import drive
from umbel.result.run import Run
from umbel.run.scores import (
    adjusted_rand_index,
    normalised_mutual_information,
    purity,
    score,
)
from umbel.server.numbering import in_order_of_appearance

assignments = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=2, max_size=30)


def test_purity_is_the_share_of_clients_in_the_largest_group_of_their_cluster() -> None:
    groups, labels = np.array([0, 0, 0, 1, 1, 1, 1]), np.array([7, 7, 2, 2, 2, 2, 9])
    assert purity(groups, labels) == pytest.approx((2 + 3 + 1) / 7)
    assert purity(groups, np.arange(7)) == 1.0
    assert purity(groups, np.zeros(7, dtype=np.int64)) == pytest.approx(4 / 7)


def test_a_perfect_clustering_scores_one_whatever_its_names() -> None:
    groups, labels = np.array([0, 0, 1, 1, 2]), np.array([5, 5, 0, 0, 9])
    assert adjusted_rand_index(groups, labels) == 1.0
    assert purity(groups, labels) == 1.0
    assert normalised_mutual_information(groups, labels) == pytest.approx(1.0)


def test_one_cluster_or_one_a_client_says_nothing_of_the_groups() -> None:
    groups = np.array([0, 0, 1, 1])
    assert adjusted_rand_index(groups, np.zeros(4, dtype=np.int64)) == 0.0
    assert adjusted_rand_index(groups, np.arange(4)) == 0.0


@settings(max_examples=20)
@given(pairs=assignments)
def test_names_of_clusters_do_not_matter(pairs: list[tuple[int, int]]) -> None:
    groups, labels = np.array(pairs).T
    renamed = np.array([30, 10, 40, 0, 20])[labels]
    for agreement in (adjusted_rand_index, purity, normalised_mutual_information):
        assert agreement(groups, labels) == pytest.approx(agreement(groups, renamed))
        assert agreement(groups, labels) <= 1.0 + 1e-12


@given(pairs=assignments)
def test_agreement_is_that_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    groups, labels = np.array(pairs).T
    assert adjusted_rand_index(groups, labels) == adjusted_rand_score(groups, labels)
    expected = normalized_mutual_info_score(groups, labels)
    assert normalised_mutual_information(groups, labels) == pytest.approx(expected, abs=3e-15)


@given(pairs=assignments)
def test_clusters_are_named_in_order_of_their_first_clients(pairs: list[tuple[int, int]]) -> None:
    labels = np.array(pairs)[:, 0]
    names = in_order_of_appearance(labels)
    first_seen = list(dict.fromkeys(names.tolist()))
    assert first_seen == list(range(len(set(labels.tolist()))))
    assert adjusted_rand_index(labels, names) == 1.0


def test_clients_that_are_served_weights_are_scored_by_their_mixture() -> None:
    net, federation = mlp(dtype=torch.float64), blobs()
    run, size = Run(FedEM(2), federation, net), federation.num_clients
    models = torch.stack([net.new(0), net.new(1)])
    only_second = torch.tensor([[0.0, 1.0]]).double().repeat(size, 1)
    state = MixtureState(models, torch.zeros(size, dtype=torch.long), only_second)
    found = drive(score(FedEM(2), state, run.context(0, 1)), Sequential(net, federation))
    for client in range(size):
        x, y = federation.test.of(client)
        right = net.outputs(models[1], x.double()).argmax(1) == y
        assert found.accuracy[client] == pytest.approx(float(right.double().mean()))
        assert torch.equal(found.models.row(client), models[1])
    assert found.clusters.tolist() == [0] * size


@pytest.mark.parametrize("engine", [EngineSettings(name=n) for n in ("sequential", "vectorised")])
@pytest.mark.parametrize("metrics", [(), ("log-loss",)])
def test_a_client_without_test_examples_of_several_labels_counts_in_no_mean(
    engine: EngineSettings, metrics: tuple[str, ...]
) -> None:
    rng = np.random.default_rng(0)

    def client(count: int) -> tuple[Any, Any]:
        x = rng.normal(size=(count, 4)).astype(np.float32)
        return x, (x[:, :3] > 0).astype(np.int64)

    federation = Federation.from_arrays([client(n) for n in (1, 30, 30)])
    assert federation.test.sizes[0] == 0
    net = Net(lambda: nn.Linear(4, 3), BINARY)
    run = Run(FedAvg(), federation, net, engine=engine, metrics=metrics)
    ((state, record),) = run.rounds(1)
    scores = run.scores(state, run.context(0, 1))
    assert record.loss == pytest.approx(float(scores.loss[1:].mean()))
