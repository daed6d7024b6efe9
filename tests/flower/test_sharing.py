"""What stays with a client stays at its node, and is not sent."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.algorithms.test_contract import LOCAL
from tests.flower.small import SMALL, grid_of, last_state
from umbel.algorithms import FedAvg, Sharing
from umbel.testing import assert_same_state


def test_heads_stay_with_clients_and_results_are_those_of_one_process(tmp_path: Path) -> None:
    method = Sharing(FedAvg(LOCAL), kept=("3.*",))
    experiment = replace(SMALL, algorithm=method, participation=1.0, rounds=3)
    grid = grid_of(experiment, tmp_path)
    assert_same_state(last_state(experiment, grid), last_state(experiment, None), 1e-4)
