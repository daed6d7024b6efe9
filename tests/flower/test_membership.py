"""Nodes that come and go while a run over Flower goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.algorithms.test_contract import LOCAL
from tests.flower.grid import MemoryGrid
from tests.flower.small import SMALL, having
from umbel import CFLGP, FLACC, IFCA, Event, FedAvg, Membership, Time, load
from umbel.algorithms.base import Algorithm
from umbel.algorithms.feddrift import FedDrift
from umbel.checks import QuorumError
from umbel.data.federation import Federation
from umbel.experiment.toml_file import write
from umbel.flower import client_app
from umbel.flower.registry import Roll
from umbel.flower.server import Settings, serve
from umbel.folder.run_folder import RunFolder
from umbel.result.run import Experiment
from umbel.run.drift import drift_of
from umbel.run.records import MOVES
from umbel.testing import assert_same_state

ROUNDS = 8
NODES = (("a", "b", "c"), ("d", "e"), ("f", "g"))
EXPERIMENT = replace(
    SMALL,
    rounds=ROUNDS,
    algorithm=IFCA(local=LOCAL),
    participation=0.75,
    membership=Membership(forget_after=2),
)
GONE: Mapping[int, Sequence[int]] = {0: (3,), 2: (), 3: (1,), 5: (), 6: (2,)}
"""Nodes that are not there from these rounds on."""
EVENTS = (
    Event(2, joins=("f", "g")),
    Event(3, leaves=("a", "b", "c")),
    Event(5, joins=("a", "b", "c")),
    Event(6, leaves=("d", "e")),
)
"""The same for a simulation."""


def clients(names: Sequence[str], seed: int = 0) -> Federation:
    """Clients of two groups, with other labels for the same inputs."""
    train, test = [], []
    for name in names:
        rng = np.random.default_rng([seed, ord(name)])
        x = rng.random((30 + ord(name) % 5, 64), dtype=np.float32)
        y = (10 * x[:, 0]).astype(int)
        y = y if ord(name) % 2 else 9 - y
        train.append((x[:20], y[:20]))
        test.append((x[20:], y[20:]))
    return Federation.from_arrays(train, test, names=names, num_classes=10)


def over_time(names: Sequence[str]) -> Federation:
    """Clients with new examples in each of five steps; "c" is of the other group from step 2 on."""
    steps = []
    for step in range(5):
        drawn = clients(names, seed=step).train
        there = {name: drawn.of(number) for number, name in enumerate(names)}
        if step >= 2 and "c" in there:
            x, y = there["c"]
            there["c"] = x, 9 - y
        steps.append(there)
    return Federation.over_time(steps, num_classes=10)


@dataclass
class Scheduled(MemoryGrid):
    """Nodes that are there in some rounds; the round is told by the run's records."""

    folder: Path = Path()
    gone: Mapping[int, Sequence[int]] = field(default_factory=dict)
    killed_in: int = -1  # the round in which the server is killed

    @property
    def round(self) -> int:
        file = self.folder / "records.jsonl"
        return len(file.read_text().splitlines()) if file.is_file() else 0

    def get_node_ids(self) -> list[int]:
        if self.round == self.killed_in:
            raise KeyboardInterrupt
        away = self.gone[max((n for n in self.gone if n <= self.round), default=0)]
        return [node for node in self.apps if node not in away]


def grid_of(
    tmp_path: Path, experiment: Experiment, gone: Mapping[int, Sequence[int]] = GONE, **more: Any
) -> Scheduled:
    tmp_path.mkdir(exist_ok=True)
    file = tmp_path / "experiment.toml"
    file.write_text(write(experiment))
    made = clients if experiment.time is None else over_time
    apps = {n: client_app(file, having(made(each))) for n, each in enumerate(NODES, start=1)}
    configs: dict[int, dict[str, Any]] = {n: {"memory-dir": str(tmp_path)} for n in apps}
    return Scheduled(apps, configs, folder=tmp_path / "runs" / "small-seed0", gone=gone, **more)


def served(grid: Scheduled, experiment: Experiment) -> RunFolder:
    runs = str(grid.folder.parent)
    settings = Settings(clients=5, patience=5.0, time_limit=5.0, runs_dir=runs)
    return serve(grid, experiment, settings)


@pytest.mark.parametrize(
    ("method", "time"),
    [
        (FLACC(LOCAL, n_sep=2), None),
        (IFCA(local=LOCAL), None),
        (CFLGP(local=LOCAL), None),
        (FedDrift(local=LOCAL), None),
        (FedDrift(local=LOCAL), Time(rounds=2, steps=4)),
    ],
    ids=["FLACC", "IFCA", "CFLGP", "FedDrift", "FedDrift-over-time"],
)
def test_a_simulation_with_the_same_schedule_ends_the_same(
    method: Algorithm[Any], time: Time | None, tmp_path: Path
) -> None:
    experiment = replace(EXPERIMENT, algorithm=method, time=time)
    folder = served(grid_of(tmp_path, experiment), experiment)
    names = [name for node in NODES for name in node]
    everyone = clients(names) if time is None else over_time(names)
    there = replace(experiment, membership=Membership(EVENTS, forget_after=2))
    *rounds, last = there.run(everyone, there.engine).rounds(ROUNDS)
    found = load(folder.path)
    assert_same_state(found.state, last[0], tolerance=1e-4)
    for record, (_, expected) in zip(found.records, rounds, strict=False):
        assert [getattr(record, each) for each in MOVES] == [
            getattr(expected, each) for each in MOVES
        ]
        assert record.missing == ()
        assert record.accuracy == pytest.approx(expected.accuracy, abs=1e-3)
    assert found.drift.changes == drift_of([record for _, record in [*rounds, last]]).changes
    # Those of the second node are away, and keep their places and the results of earlier steps.
    assert list(found.clusters) == names
    away = (3, 4) if time is None else ()
    assert [client.loss is None for client in found.clients] == [n in away for n in range(7)]


@pytest.mark.parametrize("killed_in", [1, 3, 6])
def test_a_killed_server_goes_on_with_the_roll_as_it_was(killed_in: int, tmp_path: Path) -> None:
    whole = load(served(grid_of(tmp_path / "whole", EXPERIMENT), EXPERIMENT).path)
    every = replace(EXPERIMENT, checkpoint_every=2)
    grid = grid_of(tmp_path / "killed", every, killed_in=killed_in)
    with pytest.raises(KeyboardInterrupt):
        served(grid, every)
    grid.killed_in = -1
    resumed = load(served(grid, every).path)
    assert_same_state(resumed.state, whole.state, tolerance=1e-6)
    moves = [[(r.joined, r.left) for r in each.records] for each in (resumed, whole)]
    assert moves[0] == moves[1]


def test_a_client_that_comes_back_with_other_data_counts_by_its_new_numbers(tmp_path: Path) -> None:
    experiment = replace(EXPERIMENT, algorithm=FedAvg(LOCAL), participation=1.0)
    grid = grid_of(tmp_path, experiment, {0: (), 2: (2,), 4: ()}, killed_in=3)
    with pytest.raises(KeyboardInterrupt):
        served(grid, experiment)
    more = [(x, y) for x, y in [(np.ones((50, 64), dtype=np.float32), np.arange(50) % 10)] * 2]
    other = Federation.from_arrays(more, more, names=("d", "e"), num_classes=10)
    grid.apps = {**grid.apps, 2: client_app(tmp_path / "experiment.toml", having(other))}
    grid.killed_in = -1
    folder = served(grid, experiment)
    roll, found = Roll.read(folder.file("clients.json")), load(folder.path)
    assert dict(zip(roll.names, roll.train, strict=True))["d"] == 50
    assert {c.name: c.examples for c in found.clients}["d"] == 50
    assert not any(record.bounded for record in found.records)
    assert found.records[4].joined == (3, 4)


def test_a_run_waits_for_somebody_and_says_so_if_nobody_comes(tmp_path: Path) -> None:
    grid = grid_of(tmp_path, EXPERIMENT, {0: (), 2: (1, 2, 3)})
    with pytest.raises(QuorumError, match="round 2: no node is connected; the same `flwr run`"):
        served(grid, EXPERIMENT)
    grid.gone = {0: ()}
    assert load(served(grid, EXPERIMENT).path).records[-1].left == ()
