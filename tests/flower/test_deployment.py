"""Real processes and sockets: the results of one process, whatever dies or comes too late.

All tests share one SuperLink and two nodes. What goes wrong goes wrong in one run, in the order of
this file, and its records say who was absent. That nothing was lost or counted twice shows in the
end: the models are those of a run in one process in which the same clients were absent from the
same rounds.
"""

from __future__ import annotations

import os
import signal
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from tests.flower.deployed_runs import BASE, LOCAL, Absent
from tests.flower.deployment import Deployment
from umbel.algorithms import FedAvg
from umbel.data.scenarios.folder import Folder
from umbel.data.sources import Sources
from umbel.engines.replies.validation import Limits
from umbel.experiment.toml_file import write
from umbel.flower.engine import TAKEN
from umbel.folder import checkpoint
from umbel.folder.execution import restore
from umbel.folder.run_folder import RunFolder

pytestmark = pytest.mark.deployment

ROUNDS = 100  # more than there is time for
THERE = (3, 4)
"""The clients of the node that things happen to."""

FAULTY = replace(
    BASE,
    algorithm=FedAvg(LOCAL),
    name="app",
    rounds=ROUNDS,
    evaluate_every=ROUNDS,
    limits=Limits(quorum=0.1),
)


@pytest.fixture(scope="module")
def run(deployed: Deployment) -> RunFolder:
    """A run after its first round; all that goes wrong goes wrong in this one."""
    app = deployed.app("app", write(FAULTY))
    hook = app / "app" / "client.py"
    wait = "    while (Path(str(context.node_config['data'])) / 'slow').exists():\n"
    wait += "        __import__('time').sleep(0.1)\n"
    text = hook.read_text().replace('    if "data" in', wait + '    if "data" in')
    assert wait in text
    hook.write_text(text)
    run = RunFolder(app.parent / "runs" / "app-seed0")
    again(deployed, time_limit=60)  # what comes later is late
    deployed.wait_for(lambda: rounds(run) >= 1)
    return run


def again(deployed: Deployment, time_limit: int = 600) -> None:
    settings = {"patience": 480, "time_limit": time_limit, "release_after": 5}
    deployed.run(deployed.folder / "app", clients=5, **settings)


def rounds(run: RunFolder) -> int:
    return len(run.records()) if run.file("records.jsonl").is_file() else 0


def absences(run: RunFolder, since: int) -> list[tuple[int, ...]]:
    return [tuple(sorted({*r.missing, *r.refused})) for r in run.records()[since:]]


@pytest.mark.thorough
def test_an_answer_that_comes_late_is_not_counted(deployed: Deployment, run: RunFolder) -> None:
    slow = deployed.folder / "data" / "site1" / "slow"
    slow.touch()
    deployed.wait_for(lambda: THERE in absences(run, 0))
    slow.unlink()  # now it answers, one round too late, or more
    late = rounds(run)
    deployed.wait_for(lambda: () in absences(run, late))
    assert {record.missing for record in run.records()} == {(), THERE}
    assert not any(record.refused for record in run.records())


def test_a_server_that_was_killed_goes_on_when_it_is_started_again(
    deployed: Deployment, run: RunFolder
) -> None:
    kill_server_app(deployed)
    done = rounds(run)
    again(deployed)
    deployed.wait_for(lambda: rounds(run) >= done + 1)


@pytest.mark.thorough
def test_a_superlink_that_was_killed_finds_its_nodes_in_its_database(
    deployed: Deployment, run: RunFolder
) -> None:
    deployed.kill("link")
    kill_server_app(deployed)
    done = rounds(run)
    deployed.start_link()
    again(deployed)
    deployed.wait_for(lambda: () in absences(run, done))
    assert all(deployed.alive(f"node{n}") for n in range(2))  # they were never restarted


def test_a_node_that_dies_in_a_round_is_missing_until_it_comes_back(
    deployed: Deployment, run: RunFolder
) -> None:
    # The SuperLink finds the node dead, and says so, well before the time of 600 s is over.
    done = rounds(run)
    deployed.kill("node1")
    deployed.wait_for(lambda: THERE in absences(run, done))

    def back() -> bool:
        # As long as the SuperLink takes it for online, it refuses the same node.
        if "node1" not in deployed.running or not deployed.alive("node1"):
            deployed.start_site(1)
        return absences(run, -1) == [()]

    deployed.wait_for(back)
    since = run.records()[done:]
    assert {*absences(run, done)} == {(), THERE}
    assert any(record.missing == THERE for record in since)
    # Without a key of its own, it is a stranger until its predecessor is gone for long enough.
    assert all(TAKEN in why for record in since for why in record.refused.values())


def test_after_all_that_nothing_is_lost_or_counted_twice(
    deployed: Deployment, run: RunFolder
) -> None:
    kill_server_app(deployed)  # so that nobody writes there any more
    everyone = Folder(str(deployed.folder / "data" / "all"), num_classes=3)
    whole = replace(FAULTY, scenario=everyone).open(Sources.default())
    made = checkpoint.header(run.file("checkpoint.safetensors"))["made"]
    state, done = restore(run, whole, whole.start(ROUNDS), made)
    records = run.records()
    assert state is not None
    assert [record.round for record in records] == list(range(done))
    replayed = replace(whole, engine=Absent(whole.clients, records)).rounds(ROUNDS)
    *_, (expected, _) = islice(replayed, done)
    torch.testing.assert_close(state.models, expected.models, rtol=1e-4, atol=1e-5)


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
