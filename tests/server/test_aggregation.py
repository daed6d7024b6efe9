from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.federations import layout
from umbel.checks import UsageError
from umbel.client.layout import Entry, Layout
from umbel.server.aggregation import Averaging, cluster_mean

ROWS = torch.tensor([[1.0, 10.0], [3.0, 30.0], [5.0, 50.0]])
LABELS = torch.tensor([0, 2, 0])
COUNTS = torch.tensor([1, 7, 3])


def test_the_mean_of_a_cluster_is_weighted_and_an_empty_one_is_zero() -> None:
    means = cluster_mean(ROWS, LABELS, COUNTS, 4)
    assert means.tolist() == [[4.0, 40.0], [0.0, 0.0], [3.0, 30.0], [0.0, 0.0]]


@pytest.mark.parametrize("clusters", [1, 100])
@pytest.mark.parametrize("dtype", [torch.long, torch.bool, torch.uint8])
def test_the_mean_of_whole_numbers_is_no_whole_number(dtype: torch.dtype, clusters: int) -> None:
    rows = torch.tensor([[1], [0]], dtype=dtype)
    means = cluster_mean(rows, torch.tensor([0, 0]), torch.tensor([1, 1]), clusters)
    assert means[0].tolist() == [0.5]


@given(seed=st.integers(0, 1000), rows=st.integers(1, 12), clusters=st.integers(1, 5))
def test_the_mean_agrees_with_numpy(seed: int, rows: int, clusters: int) -> None:
    rng = np.random.default_rng(seed)
    values, weights = rng.normal(size=(rows, 3)), rng.integers(1, 100, rows)
    labels = rng.integers(0, clusters, rows)
    expected = np.zeros((clusters, 3))
    for k in set(labels.tolist()):
        expected[k] = np.average(values[labels == k], axis=0, weights=weights[labels == k])
    found = cluster_mean(
        torch.from_numpy(values), torch.from_numpy(labels), torch.from_numpy(weights), clusters
    )
    np.testing.assert_allclose(found.numpy(), expected, atol=1e-12)


def test_clients_weigh_by_their_examples_or_equally() -> None:
    by_examples = Averaging().step(ROWS, LABELS, COUNTS, 3, layout(2))
    equally = Averaging(weights="equal").step(ROWS, LABELS, COUNTS, 3, layout(2))
    assert by_examples.tolist() == [[4.0, 40.0], [0.0, 0.0], [3.0, 30.0]]
    assert equally.tolist() == [[3.0, 30.0], [0.0, 0.0], [3.0, 30.0]]


def test_shared_parameters_take_the_mean_of_everyone_in_every_cluster() -> None:
    names = Layout((Entry("trunk", torch.Size([1])), Entry("head", torch.Size([1]))), ())
    averaging = Averaging(weights="equal", shared=("trunk",))
    step = averaging.step(ROWS, LABELS, COUNTS, 3, names)
    assert step.tolist() == [[3.0, 30.0], [3.0, 0.0], [3.0, 30.0]]
    with pytest.raises(UsageError, match="shared: 'tronk' is not a pattern for any of trunk, head"):
        Averaging(shared=("tronk",)).step(ROWS, LABELS, COUNTS, 3, names)
