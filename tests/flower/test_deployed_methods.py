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
from tests.frozen import Pretrained, write_trunk
from umbel.algorithms import LCFL, FedAvg
from umbel.data.scenarios.folder import Folder
from umbel.data.sources import Sources
from umbel.experiment.toml_file import write
from umbel.folder import checkpoint
from umbel.folder.execution import restore
from umbel.folder.run_folder import RunFolder
from umbel.server.clusterers import KMedoids

pytestmark = pytest.mark.deployment


@pytest.mark.thorough
def test_a_method_comes_to_what_it_comes_to_in_one_process(deployed: Deployment) -> None:
    # Clients are sent one model, those of others to judge, and at last several.
    lcfl = LCFL(clusterer=KMedoids(2), local=LOCAL)
    experiment = replace(BASE, algorithm=lcfl, name="lcfl", rounds=2)
    app = deployed.app("lcfl", write(experiment))
    deployed.run(app, clients=5)
    run = RunFolder(app.parent / "runs" / "lcfl-seed0")
    deployed.wait_for(lambda: run.finished)
    whole = Folder(str(deployed.folder / "data" / "all"), num_classes=3)
    expected = replace(experiment, scenario=whole).open(Sources.default()).rounds(2)
    for found, (_, other) in zip(run.records(), expected, strict=True):
        for name, value in vars(other.untimed()).items():
            if name not in ("ari", "purity", "nmi"):  # no site tells its groups
                assert getattr(found.untimed(), name) == pytest.approx(value, abs=1e-4), name


@pytest.mark.thorough
def test_hostile_nodes_are_named_and_the_others_have_their_result(deployed: Deployment) -> None:
    everyone = deployed.folder / "seven"
    write_clients(everyone, count=7, nodes=1)  # the first five are those of the honest nodes
    for client in everyone.glob("site0/[0-4].npz"):
        client.unlink()
    experiment = replace(BASE, algorithm=FedAvg(LOCAL), name="hostile", rounds=1, evaluate_every=1)
    app = deployed.app("hostile", write(experiment))
    hook = app / "hostile" / "client.py"
    root = str(Path(__file__).parents[2])
    start = f"\nimport sys\n\nsys.path.insert(0, {root!r})\n"
    start += "from tests.flower.hostile_app import HostileApp\n\napp = HostileApp(app)\n"
    hook.write_text(hook.read_text() + start)
    run = RunFolder(app.parent / "runs" / "hostile-seed0")
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

    (found,) = run.records()
    assert not found.missing
    assert set(found.refused) == {5, 6}
    assert re.search("serialised|bytes for shape", found.refused[5])
    assert "evaluation: right: " in found.refused[5]
    nodes = json.loads(run.file("nodes.json").read_text())
    assert {nodes["clients"][str(n)] for n in (0, 1, 2)} != {nodes["clients"]["5"]}
    refusals = sorted(nodes["refused"].values())
    assert refusals[0].startswith("clients '0', '1', '2', '3', '4' are another node's")
    assert refusals[1].startswith("left out: input_shape: [30000, 10000] is more than")

    whole = replace(experiment, scenario=Folder(str(everyone / "all"), num_classes=3))
    honest = whole.open(Sources.default())
    honest = replace(honest, engine=Absent(honest.clients, [found, found]))
    ((expected, record),) = honest.rounds(1)
    made = checkpoint.made(run.file("checkpoint.safetensors"))
    state, _ = restore(run, honest.start(1), made)
    assert state is not None
    torch.testing.assert_close(state.models, expected.models, rtol=1e-4, atol=1e-5)
    assert found.accuracy == pytest.approx(record.accuracy)
    assert found.worst == pytest.approx(record.worst)


HEARD = """
import logging


class Told(logging.StreamHandler):
    def emit(self, record):
        super().emit(record)
        if "is left out" in record.getMessage():
            {told}.touch()


logging.getLogger("umbel").addHandler(Told())
"""


@pytest.mark.thorough
def test_a_node_with_another_backbone_is_left_out(deployed: Deployment) -> None:
    for process, seed in (("link", 0), ("node0", 0), ("node1", 1)):
        write_trunk(deployed.folder / f"trunk-{process}", 6, seed)
    model = Pretrained(file=str(deployed.folder / "trunk-{process}"))
    experiment = replace(BASE, model=model, algorithm=FedAvg(LOCAL), name="frozen", rounds=1)
    app = deployed.app("frozen", write(experiment))
    run = RunFolder(app.parent / "runs" / "frozen-seed0")
    here = f"\nimport sys\n\nsys.path.insert(0, {str(Path(__file__).parents[2])!r})\n"
    for file in ("client.py", "server.py"):
        code = app / "frozen" / file
        code.write_text(code.read_text() + here)
    # The other node says who it is when this one has been heard.
    told = f"Path({str(deployed.folder / 'told')!r})"
    code = app / "frozen" / "server.py"
    code.write_text(code.read_text() + HEARD.format(told=told))
    wait = f"    told = {told}\n"
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
