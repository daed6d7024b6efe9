"""A small experiment, and nodes in this process that have its clients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Context

from tests.algorithms.test_contract import LOCAL
from tests.flower.grid import MemoryGrid
from umbel.algorithms import FLACC, FedAvg
from umbel.algorithms.base import State
from umbel.data.federation import Federation
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.data.sources import Sources
from umbel.experiment.toml_file import write
from umbel.flower import FlowerEngine, client_app, slice_of
from umbel.flower.client import Load
from umbel.flower.client_owners import Owners
from umbel.flower.discovery import Meeting
from umbel.flower.registry import Roll
from umbel.networks import MLP
from umbel.result.run import Experiment

SMALL = Experiment(
    replace(ROTATED_DIGITS, clients=8, examples=(20, 40)),
    MLP((8,)),
    FLACC(LOCAL, n_sep=2),
    name="small",
    rounds=4,
    participation=0.75,
)


def grid_of(experiment: Experiment, folder: Path, nodes: int = 3) -> MemoryGrid:
    """Nodes that share the clients of the experiment's scenario."""
    folder.mkdir(exist_ok=True)
    file = folder / "experiment.toml"
    file.write_text(write(experiment))

    def load(context: Context, settings: Experiment) -> Federation:
        return slice_of(context, settings.scenario.build(settings.seed, Sources.default()))

    # The ids of nodes say nothing about their clients.
    apps = {1000 - 7 * n: client_app(file, load) for n in range(nodes)}
    configs: dict[int, dict[str, Any]] = {
        node: {"partition-id": n, "num-partitions": nodes, "memory-dir": str(folder)}
        for n, node in enumerate(apps)
    }
    return MemoryGrid(apps, configs)


def engine_of(
    grid: MemoryGrid, time_limit: float = 0.5, wanted: int = 8, release_after: float = 60.0
) -> FlowerEngine:
    meeting = Meeting(grid, time_limit, owners=Owners(release_after=release_after))
    nodes = meeting.gather(wanted, 5.0)
    return FlowerEngine(meeting, Roll.call(nodes, meeting.sites).names, nodes, time_limit)


def last_state(experiment: Experiment, grid: MemoryGrid | None) -> State:
    run = experiment.open(Sources.default())
    if grid is not None:
        run = replace(run, engine=engine_of(grid))
    *_, (state, _) = run.rounds(experiment.rounds)
    return state


def fated(
    tmp_path: Path, fates: dict[int, str], quorum: float = 0.0, rounds: int = 1
) -> tuple[State, Any, FlowerEngine]:
    """One round of FedAvg with everyone, where nodes (counted from 0) have these fates."""
    experiment = replace(SMALL, algorithm=FedAvg(LOCAL), participation=1.0, rounds=rounds)
    grid = grid_of(experiment, tmp_path)
    engine = engine_of(grid)
    ids = list(grid.apps)
    grid.fate |= {ids[n]: fate for n, fate in fates.items()}
    run = replace(experiment.open(Sources.default()), engine=engine)
    run = replace(run, limits=replace(run.limits, quorum=quorum))
    *_, (state, record) = run.rounds(rounds)
    return state, record, engine


def clients(names: Sequence[str]) -> Federation:
    rng = np.random.default_rng(0)
    shards = [(rng.random((20, 64), dtype=np.float32), rng.integers(0, 10, 20)) for _ in names]
    return Federation.from_arrays(shards, names=names, num_classes=10)


def having(federation: Federation) -> Load:
    return lambda _context, _experiment: federation


def site(tmp_path: Path, *federations: Federation, of: Experiment = SMALL) -> MemoryGrid:
    """Nodes with these clients."""
    file = tmp_path / "experiment.toml"
    file.write_text(write(of))
    apps = {n: client_app(file, having(f)) for n, f in enumerate(federations, start=1)}
    return MemoryGrid(apps, {n: {"memory-dir": str(tmp_path)} for n in apps})
