"""A node's settings bound the engine of its machine, and the server is told what work takes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from tests.algorithms.test_contract import LOCAL
from tests.flower.small import SMALL, engine_of, grid_of
from umbel.algorithms import FedAvg
from umbel.checks import QuorumError, UsageError
from umbel.data.sources import Sources
from umbel.engines import EngineSettings, Vectorised
from umbel.flower.limits import engine_here
from umbel.testing import assert_same_state

ALL = replace(SMALL, algorithm=FedAvg(LOCAL), participation=1.0, rounds=1)


def test_what_a_node_sets_comes_before_the_experiment() -> None:
    config: dict[str, Any] = {"engine-memory-mb": "64", "engine-workers": 1, "data": "site"}
    assert engine_here(config, EngineSettings("sequential", workers=8)) == EngineSettings(
        "sequential", memory_mb=64.0, workers=1
    )
    assert engine_here({}, EngineSettings()) == EngineSettings()


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"engine-workers": "few"}, "engine-workers: 'few' is not a whole number"),
        ({"engine-memory-mb": -1.0}, "engine-memory-mb: -1.0 is not more than 0, and below"),
    ],
)
def test_a_setting_that_is_not_possible_is_refused_by_its_name(
    config: dict[str, Any], why: str
) -> None:
    with pytest.raises(UsageError, match=f"^{why}"):
        engine_here(config, EngineSettings())


def test_nodes_of_other_engines_compute_the_same(tmp_path: Path) -> None:
    grid = grid_of(ALL, tmp_path)
    run = ALL.open(Sources.default())
    grid.configs[1000]["engine-memory-mb"] = 0.01  # type: ignore[index]
    ((found, _),) = replace(run, engine=engine_of(grid)).rounds(1)
    ((expected, _),) = run.rounds(1)
    assert_same_state(found, expected, 1e-5)


def test_the_server_is_told_what_the_work_takes_where_a_node_lacks_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def short(*_: Any) -> NoReturn:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate")

    monkeypatch.setattr(Vectorised, "answer", short)
    grid = grid_of(ALL, tmp_path)
    run = replace(ALL.open(Sources.default()), engine=engine_of(grid))
    expected = "MemoryError: the models of one client take 0.0 MiB .*; what helps: engine.memory_mb"
    with pytest.raises(QuorumError, match=expected):
        list(run.rounds(1))
