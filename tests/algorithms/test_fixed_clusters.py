"""FedAvg in clusters that are given."""

from __future__ import annotations

import pytest
import torch

import umbel
from umbel.client.work import LocalTraining
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.data.sources import Sources
from umbel.networks import Linear

LOCAL = LocalTraining(epochs=1)


def models(algorithm: umbel.Algorithm[umbel.State]) -> torch.Tensor:
    federation = ROTATED_DIGITS.build(0, Sources.default(None))
    net = umbel.Net(lambda: Linear().build((1, 8, 8), 10))
    return list(umbel.Run(algorithm, federation, net).rounds(2))[-1][0].models


def test_the_planted_groups_make_it_the_oracle_and_none_makes_it_fedavg() -> None:
    federation = ROTATED_DIGITS.build(0, Sources.default(None))
    assert federation.groups is not None
    given = umbel.FixedClusters(clusters=tuple(federation.groups.tolist()), local=LOCAL)
    assert torch.equal(models(given), models(umbel.Oracle(LOCAL)))
    assert torch.equal(models(umbel.FixedClusters(local=LOCAL)), models(umbel.FedAvg(LOCAL)))


def test_a_cluster_for_each_client_is_needed() -> None:
    with pytest.raises(umbel.UsageError, match="each of the 20 clients"):
        models(umbel.FixedClusters(clusters=(0, 1)))
    with pytest.raises(umbel.UsageError, match="0 or more"):
        umbel.FixedClusters(clusters=(0, -1))


def test_clusters_are_numbers_of_0_or_more() -> None:
    with pytest.raises(
        umbel.UsageError, match=r"^clusters: \(0, -1, 0\) is not numbers of 0 or more"
    ):
        umbel.FixedClusters(clusters=(0, -1, 0))
