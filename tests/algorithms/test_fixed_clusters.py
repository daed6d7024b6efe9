"""FedAvg in clusters that are given."""

from __future__ import annotations

from pathlib import Path

import numpy as np
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


def test_clusters_may_be_given_by_name_to_clients_in_any_order(tmp_path: Path) -> None:
    x, y = np.arange(12, dtype=np.float32).reshape(6, 2), np.array([0, 1] * 3)
    method = umbel.FixedClusters(clusters=(0, 0, 1), clients=("a", "gone", "b"))
    net = umbel.Net(lambda: torch.nn.Linear(2, 2))
    federation = umbel.Federation.from_arrays({"b": (x, y), "a": (x, y)})
    run = umbel.Run(method, federation, net)
    run.save(tmp_path / "run", 1)
    assert umbel.load(tmp_path / "run", net).state.labels.tolist() == [1, 0]
    others = umbel.Federation.from_arrays({"a": (x, y), "new": (x, y)})
    with pytest.raises(umbel.UsageError, match="no cluster was given for new"):
        umbel.Run(method, others, net).start(1)
