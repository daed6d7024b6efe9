"""Real processes and sockets: the results of one process, whatever dies or comes too late.

All tests share one SuperLink and two nodes. What goes wrong goes wrong in one run, in the order of
this file, and its records say who was absent. That nothing was lost or counted twice shows in the
end: the models are those of a run in one process in which the same clients were absent from the
same rounds.
"""

from __future__ import annotations

import json
import os
import re
import signal
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import pytest
import torch

from tests.flower.deployment import Deployment, write_clients
from tests.flower.hostile_app import ROUNDS as LIES
from tests.frozen import Pretrained, write_trunk
from umbel.algorithms import FLACC, IFCA, LCFL, FedAvg
from umbel.client.work import LocalTraining
from umbel.data.scenarios.folder import Folder
from umbel.data.sources import Sources
from umbel.engines import EngineSettings
from umbel.engines.validation import Limits
from umbel.flow import Engine, Replies, Request
from umbel.flower.engine import TAKEN
from umbel.networks import MLP
from umbel.runs import checkpoint
from umbel.runs.config import write
from umbel.runs.experiment import Experiment
from umbel.runs.folder import RunFolder
from umbel.runs.records import Record
from umbel.server.clusterers import KMedoids

pytestmark = pytest.mark.deployment

ROUNDS = 100  # more than there is time for
THERE = (3, 4)
"""The clients of the node that things happen to."""

LOCAL = LocalTraining(epochs=2, batch_size=8)
BASE = Experiment(
    Folder("all", num_classes=3),
    MLP((8,)),
    FLACC(LOCAL, n_sep=2),
    rounds=2,
    evaluate_every=2,
    engine=EngineSettings("sequential"),  # a message starts a process: this one loads faster
)
METHODS = {
    "flacc": BASE,
    "ifca": replace(BASE, algorithm=IFCA(num_clusters=2, local=LOCAL)),
    "lcfl": replace(BASE, algorithm=LCFL(clusterer=KMedoids(2), local=LOCAL)),
}
FAULTY = replace(
    BASE,
    algorithm=FedAvg(LOCAL),
    name="app",
    rounds=ROUNDS,
    evaluate_every=ROUNDS,
    limits=Limits(quorum=0.1),
)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    """A SuperLink and two nodes: one with clients 0, 1 and 2, and one with clients 3 and 4."""
    folder = tmp_path_factory.mktemp("deployed")
    sites = write_clients(folder / "data")
    with Deployment(folder) as processes:
        for number in range(len(sites)):
            processes.start_site(number)
        yield processes


def in_one_process(experiment: Experiment, folder: Path) -> list[object]:
    local = replace(experiment, scenario=Folder(str(folder / "all"), num_classes=3))
    return [
        record.untimed() for _, record in local.open(Sources.default()).rounds(experiment.rounds)
    ]


def test_methods_over_two_nodes_come_to_what_they_come_to_in_one_process(
    deployed: Deployment,
) -> None:
    apps = {
        name: deployed.app(name, write(replace(experiment, name=name)))
        for name, experiment in METHODS.items()
    }
    for app in apps.values():
        deployed.run(app, clients=5)
    folders = [RunFolder(app / "runs" / f"{name}-seed0") for name, app in apps.items()]
    deployed.wait_for(lambda: all(folder.finished for folder in folders))
    for folder, experiment in zip(folders, METHODS.values(), strict=True):
        expected = in_one_process(experiment, deployed.folder / "data")
        for found, other in zip(folder.records(), expected, strict=True):
            for name, value in vars(other).items():
                if name not in ("ari", "purity", "nmi"):  # no site tells its groups
                    assert getattr(found.untimed(), name) == pytest.approx(value, abs=1e-4), name


def test_hostile_nodes_are_named_and_the_others_have_their_result(deployed: Deployment) -> None:
    everyone = deployed.folder / "seven"
    write_clients(everyone, count=7, nodes=1)  # the first five are those of the honest nodes
    for client in everyone.glob("site0/[0-4].npz"):
        client.unlink()
    experiment = replace(BASE, algorithm=FedAvg(LOCAL), name="hostile", rounds=len(LIES))
    experiment = replace(experiment, evaluate_every=len(LIES))
    app = deployed.app("hostile", write(experiment))
    hook = app / "hostile" / "client.py"
    root = str(Path(__file__).parents[2])
    start = f"\nimport sys\n\nsys.path.insert(0, {root!r})\n"
    start += "from tests.flower.hostile_app import HostileApp\n\napp = HostileApp(app)\n"
    hook.write_text(hook.read_text() + start)
    run = RunFolder(app / "runs" / "hostile-seed0")
    ways = ("liar", "thief", "babbler")
    for way in ways:
        deployed.start_node(
            way,
            data=str(everyone / "site0"),
            classes=3,
            memory_dir=str(deployed.folder / way),
            hostile=way,
            stolen=str(run.file("clients.json")),
        )
    deployed.run(app, clients=7, patience=120, time_limit=60)
    deployed.wait_for(lambda: run.finished, 240)
    for way in ways:
        deployed.kill(way)

    *records, last = run.records()
    for record, why in zip([*records, last], LIES.values(), strict=True):
        assert not record.missing
        assert set(record.refused) == {5, 6}
        assert re.search(r"evaluation: right: .*" if record is last else why, record.refused[5])
    nodes = json.loads(run.file("nodes.json").read_text())
    assert {nodes["clients"][str(n)] for n in (0, 1, 2)} != {nodes["clients"]["5"]}
    refusals = sorted(nodes["refused"].values())
    assert refusals[0].startswith("clients '0', '1', '2', '3', '4' are another node's")
    assert refusals[1].startswith("left out: input_shape: [30000, 10000] is more than")

    whole = replace(experiment, scenario=Folder(str(everyone / "all"), num_classes=3))
    honest = whole.open(Sources.default())
    honest = replace(honest, engine=Absent(honest.clients, [*records, last, last]))
    *_, (expected, record) = honest.rounds(len(LIES))
    made = checkpoint.made(run.file("checkpoint.safetensors"))
    state, _ = run.restore(honest.start(len(LIES)), made)
    assert state is not None
    torch.testing.assert_close(state.models, expected.models, rtol=1e-4, atol=1e-5)
    assert last.accuracy == pytest.approx(record.accuracy)
    assert last.worst == pytest.approx(record.worst)


def test_a_node_with_another_backbone_is_left_out(deployed: Deployment) -> None:
    for process, seed in (("link", 0), ("node0", 0), ("node1", 1)):
        write_trunk(deployed.folder / f"trunk-{process}", 6, seed)
    model = Pretrained(file=str(deployed.folder / "trunk-{process}"))
    experiment = replace(BASE, model=model, algorithm=FedAvg(LOCAL), name="frozen")
    app = deployed.app("frozen", write(experiment))
    run = RunFolder(app / "runs" / "frozen-seed0")
    here = f"\nimport sys\n\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
    for file in ("client.py", "server.py"):
        code = app / "frozen" / file
        code.write_text(code.read_text() + here)
    # The other node says who it is when this one has been heard.
    wait = f"    told = Path({str(run.file('nodes.json'))!r})\n"
    wait += "    while 'site0' in str(context.node_config['data']) and not told.is_file():\n"
    wait += "        __import__('time').sleep(0.1)\n"
    code = app / "frozen" / "client.py"
    code.write_text(code.read_text().replace('    if "data" in', wait + '    if "data" in'))
    deployed.run(app, clients=3, patience=240)
    deployed.wait_for(lambda: run.finished)
    nodes = json.loads(run.file("nodes.json").read_text())
    assert sorted(nodes["clients"]) == ["0", "1", "2"]
    (why,) = nodes["refused"].values()
    assert why.startswith("left out: frozen values of digest ")


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
    run = RunFolder(app / "runs" / "app-seed0")
    again(deployed)
    deployed.wait_for(lambda: rounds(run) >= 1)
    return run


def again(deployed: Deployment, time_limit: int = 40) -> None:
    settings = {"patience": 120, "time_limit": time_limit, "release_after": 5}
    deployed.run(deployed.folder / "app", clients=5, **settings)


def rounds(run: RunFolder) -> int:
    return len(run.records()) if run.file("records.jsonl").is_file() else 0


def absences(run: RunFolder, since: int) -> list[tuple[int, ...]]:
    return [tuple(sorted({*r.missing, *r.refused})) for r in run.records()[since:]]


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


def test_a_superlink_that_was_killed_finds_its_nodes_in_its_database(
    deployed: Deployment, run: RunFolder
) -> None:
    deployed.kill("link")
    kill_server_app(deployed)
    done = rounds(run)
    deployed.start_link()
    again(deployed, time_limit=600)
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
    made = checkpoint.made(run.file("checkpoint.safetensors"))
    state, done = run.restore(whole.start(ROUNDS), made)
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
