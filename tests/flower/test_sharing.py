"""What stays with a client stays at its node, and is not sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.algorithms.test_contract import LOCAL
from tests.algorithms.test_schemes import CLUSTERED, PARTS
from tests.flower.small import SMALL, grid_of, last_state
from umbel.algorithms import FedAvg, Sharing
from umbel.testing import assert_same_state


def test_heads_stay_with_clients_and_results_are_those_of_one_process(tmp_path: Path) -> None:
    method = Sharing(FedAvg(LOCAL), kept=("3.*",))
    experiment = replace(SMALL, algorithm=method, participation=1.0, rounds=3)
    grid = grid_of(experiment, tmp_path)
    assert_same_state(last_state(experiment, grid), last_state(experiment, None), 1e-4)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        *(("fedavg", part) for part in ("ditto", "apfl", "feddyn", "moon", "fedrep")),
        *(("ifca", part) for part in ("scaffold", "kept")),
        *(("cfl-gp", part) for part in ("scaffold", "kept")),
        *(("joint", part) for part in ("ditto", "kept")),
    ],
)
def test_nodes_train_by_schemes_as_clients_of_one_process_do(
    name: str, part: str, tmp_path: Path
) -> None:
    method = PARTS[part](CLUSTERED[name])
    experiment = replace(SMALL, algorithm=method, participation=0.75, rounds=3)
    grid = grid_of(experiment, tmp_path)
    assert_same_state(last_state(experiment, grid), last_state(experiment, None), 1e-4)
