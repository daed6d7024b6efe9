"""Processes that die, and what comes too late: the run goes on, and its records say who was absent.

That nothing was lost or counted twice shows in the end: the models are those of a run in one
process in which the same clients were absent from the same rounds.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from tests.flower.deployment import Deployment, write_clients
from umbel.algorithms import FedAvg
from umbel.client.work import LocalTraining
from umbel.data.scenarios.folder import Folder
from umbel.data.sources import Sources
from umbel.engines import EngineSettings
from umbel.engines.validation import Limits
from umbel.flow import Engine, Replies, Request
from umbel.networks import MLP
from umbel.runs.config import write
from umbel.runs.experiment import Experiment
from umbel.runs.folder import RunFolder
from umbel.runs.records import Record

pytestmark = pytest.mark.xdist_group("deployment")  # one at a time: they take both cores

ROUNDS = 40
EXPERIMENT = Experiment(
    Folder("all", num_classes=3),
    MLP((8,)),
    FedAvg(LocalTraining(epochs=2, batch_size=8)),
    name="app",
    rounds=ROUNDS,
    evaluate_every=ROUNDS,
    engine=EngineSettings("sequential"),
    limits=Limits(quorum=0.1),
)


@dataclass
class Absent:
    """Clients are missing as these records say."""

    engine: Engine
    records: list[Record]
    round: int = 0

    def send(self, request: Request) -> Replies:
        record = self.records[self.round]
        self.round += 1
        absent = {*record.missing, *record.refused}
        keep = [n for n, client in enumerate(request.clients.tolist()) if client not in absent]
        return self.engine.send(request.pick(torch.tensor(keep)))


@contextmanager
def begun(
    folder: Path, nodes: int, slow: bool = False, time_limit: int = 25
) -> Iterator[tuple[Deployment, RunFolder]]:
    """A run over so many nodes, with a client or two each, after its first round."""
    sites = write_clients(folder / "data", count=2 * nodes - 1, nodes=nodes)
    with Deployment(folder) as deployed:
        for n, site in enumerate(sites):
            start(deployed, n, site)
        app = deployed.app("app", write(EXPERIMENT))
        if slow:
            hook = app / "app" / "client.py"
            wait = "    while (Path(str(context.node_config['data'])) / 'slow').exists():\n"
            wait += "        __import__('time').sleep(0.1)\n"
            text = hook.read_text().replace('    if "data" in', wait + '    if "data" in')
            assert wait in text
            hook.write_text(text)
        run = RunFolder(app / "runs" / "app-seed0")
        again(deployed, nodes, time_limit)
        deployed.wait_for(lambda: rounds(run) >= 1)
        yield deployed, run


def start(deployed: Deployment, n: int, site: Path) -> None:
    memory = str(deployed.folder / f"memory{n}")
    deployed.start_node(f"node{n}", data=str(site), classes=3, memory_dir=memory)


def again(deployed: Deployment, nodes: int, time_limit: int = 25) -> None:
    app, clients = deployed.folder / "app", 2 * nodes - 1
    deployed.run(app, clients=clients, patience=120, time_limit=time_limit)


def rounds(run: RunFolder) -> int:
    return len(run.records()) if run.file("records.jsonl").is_file() else 0


def absences(run: RunFolder) -> list[tuple[int, ...]]:
    return [tuple(sorted({*record.missing, *record.refused})) for record in run.records()]


def assert_nothing_lost_or_counted_twice(run: RunFolder) -> None:
    """Call this when no process writes there any more."""
    everyone = Folder(str(run.path.parents[2] / "data" / "all"), num_classes=3)
    whole = replace(EXPERIMENT, scenario=everyone).open(Sources.default())
    state, done = run.restore(whole.start(ROUNDS))
    records = run.records()
    assert state is not None
    assert [record.round for record in records] == list(range(done))
    replayed = replace(whole, engine=Absent(whole.clients, records)).rounds(ROUNDS)
    *_, (expected, _) = islice(replayed, done)
    torch.testing.assert_close(state.models, expected.models, rtol=1e-4, atol=1e-5)


def test_a_node_that_dies_in_a_round_is_missing_until_it_comes_back(tmp_path: Path) -> None:
    # The SuperLink finds the node dead, and says so, well before the time is over.
    with begun(tmp_path, nodes=3, time_limit=600) as (deployed, run):
        deployed.kill("node1")
        deployed.wait_for(lambda: (1, 4) in absences(run))
        site = tmp_path / "data" / "site1"

        def back() -> bool:
            # As long as the SuperLink takes it for online, it refuses the same node.
            if "node1" not in deployed.running or not deployed.alive("node1"):
                start(deployed, 1, site)
            return absences(run)[-1] == ()

        deployed.wait_for(back)
    assert {record.missing for record in run.records()} == {(), (1, 4)}
    assert not any(record.refused for record in run.records())
    assert_nothing_lost_or_counted_twice(run)


def test_an_answer_that_comes_late_is_not_counted(tmp_path: Path) -> None:
    with begun(tmp_path, nodes=2, slow=True) as (deployed, run):
        slow = tmp_path / "data" / "site1" / "slow"
        slow.touch()
        deployed.wait_for(lambda: (1,) in absences(run))
        slow.unlink()  # now it answers, one round too late, or more
        late = rounds(run)
        deployed.wait_for(lambda: () in absences(run)[late:])
    assert {record.missing for record in run.records()} == {(), (1,)}
    assert not any(record.refused for record in run.records())
    assert_nothing_lost_or_counted_twice(run)


def test_a_server_that_was_killed_goes_on_when_it_is_started_again(tmp_path: Path) -> None:
    with begun(tmp_path, nodes=2) as (deployed, run):
        kill_server_app(deployed)
        done = rounds(run)
        again(deployed, 2)
        deployed.wait_for(lambda: rounds(run) >= done + 1)
    assert_nothing_lost_or_counted_twice(run)


def test_a_superlink_that_was_killed_finds_its_nodes_in_its_database(tmp_path: Path) -> None:
    with begun(tmp_path, nodes=2) as (deployed, run):
        deployed.kill("link")
        kill_server_app(deployed)
        done = rounds(run)
        deployed.start_link()
        again(deployed, 2)
        deployed.wait_for(lambda: rounds(run) >= done + 2)
        assert all(deployed.alive(f"node{n}") for n in range(2))  # they were never restarted
    assert absences(run)[-1] == ()
    assert_nothing_lost_or_counted_twice(run)


def kill_server_app(deployed: Deployment) -> None:
    """The process of the app itself, if it still runs."""
    home = f"FLWR_HOME={deployed.folder / 'link'}".encode()
    for process in Path("/proc").glob("[0-9]*"):
        try:
            command = (process / "cmdline").read_bytes()
            mine = home in (process / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if mine and b"flwr-serverapp" in command:
            os.kill(int(process.name), signal.SIGKILL)
