"""Real processes and sockets: methods, hostile nodes and other backbones, on one SuperLink."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.flower.deployed_runs import BASE, LOCAL, Absent
from tests.flower.deployment import Deployment, write_clients
from tests.flower.hostile_app import ROUNDS as LIES
from tests.frozen import Pretrained, write_trunk
from umbel.algorithms import IFCA, LCFL, FedAvg
from umbel.data.scenarios.folder import Folder
from umbel.data.sources import Sources
from umbel.runs import checkpoint
from umbel.runs.config import write
from umbel.runs.experiment import Experiment
from umbel.runs.folder import RunFolder
from umbel.server.clusterers import KMedoids

pytestmark = pytest.mark.deployment

METHODS = {
    "ifca": replace(BASE, algorithm=IFCA(num_clusters=2, local=LOCAL), rounds=1),
    "lcfl": replace(BASE, algorithm=LCFL(clusterer=KMedoids(2), local=LOCAL), rounds=2),
}
"""Between them, clients are sent one model and several, and judge those of others."""


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
    deployed.run(app, clients=7, patience=480)
    deployed.wait_for(lambda: run.finished)
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
    experiment = replace(BASE, model=model, algorithm=FedAvg(LOCAL), name="frozen", rounds=1)
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
    deployed.run(app, clients=3, patience=480)
    deployed.wait_for(lambda: run.finished)
    nodes = json.loads(run.file("nodes.json").read_text())
    assert sorted(nodes["clients"]) == ["0", "1", "2"]
    (why,) = nodes["refused"].values()
    assert why.startswith("left out: frozen values of digest ")
