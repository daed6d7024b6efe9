"""Nodes whose clients get new examples step by step."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from flwr.app import Context

from tests.flower.grid import MemoryGrid
from tests.flower.small import SMALL, engine_of
from tests.run.test_time import LOCAL, federation, net
from umbel import CFLGP, FLACC, IFCA, FedAvg, FedCCFA, Limits, Net, Run, Time
from umbel.algorithms.base import Algorithm
from umbel.algorithms.feddrift import FedDrift
from umbel.checks import UsageError
from umbel.data.federation import Federation
from umbel.experiment.toml_file import write
from umbel.flower import client_app
from umbel.networks import MLP
from umbel.result.run import Experiment

METHODS: list[Algorithm[Any]] = [
    FedAvg(local=LOCAL),
    FLACC(local=LOCAL),
    IFCA(num_clusters=2, local=LOCAL),
    CFLGP(num_clusters=2, local=LOCAL),
    FedDrift(local=LOCAL),
    FedCCFA(align_from=3, head_rate=1.0, local=LOCAL),
]

MODEL = MLP((4,))


def grid(method: Algorithm[Any], folder: Path, loaded: list[int]) -> MemoryGrid:
    """Two nodes with three clients each; a node's data have one step more at each loading."""
    experiment = replace(SMALL, algorithm=method, model=MODEL, participation=1.0)
    file = folder / "experiment.toml"
    file.write_text(write(experiment))

    def load(context: Context, _settings: Experiment) -> Federation:
        node = int(str(context.node_config["partition-id"]))
        loaded.append(node)
        mine = federation().pick(range(3 * node, 3 * node + 3))
        steps = min(loaded.count(node), 5)
        there = mine.train.during(
            np.arange(3), np.tile(np.arange(5) < steps, (3, 1)).astype(np.float64)
        )
        assert mine.train.steps is not None
        split = replace(there, steps=mine.train.steps[:, :steps])
        return replace(mine, train=split, test=split, groups=None, concepts=None)

    apps = {node: client_app(file, load) for node in range(2)}
    configs: dict[int, dict[str, Any]] = {
        node: {"partition-id": node, "memory-dir": str(folder)} for node in apps
    }
    return MemoryGrid(apps, configs)


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_nodes_are_asked_for_new_examples_and_models_are_those_of_one_process(
    method: Algorithm[Any], tmp_path: Path
) -> None:
    loaded: list[int] = []
    time = Time(rounds=2, steps=4, keep="decay")
    engine = engine_of(grid(method, tmp_path, loaded), wanted=6)
    here = replace(federation(), groups=None, concepts=None)
    network = Net(lambda: MODEL.build(here.train.x.shape[1:], 2))
    far = Limits(max_norm_ratio=1e6)  # clients elsewhere are held to 4 otherwise
    run = Run(method, here, network, time=time, limits=far)
    runs = [run.rounds(8), replace(run, engine=engine).rounds(8)]
    for (one, record), (other, same) in zip(*runs, strict=True):
        assert torch.allclose(one.models, other.models, atol=1e-4)
        assert record.accuracy == pytest.approx(same.accuracy, abs=1e-6)
        assert not same.refused
    assert [loaded.count(node) for node in (0, 1)] == [5, 5]


def test_the_number_of_steps_is_to_be_given(tmp_path: Path) -> None:
    engine = engine_of(grid(METHODS[0], tmp_path, []), wanted=6)
    with pytest.raises(UsageError, match=r"time\.steps.*a number"):
        Run(METHODS[0], federation(), net(), time=Time(rounds=2), engine=engine)
