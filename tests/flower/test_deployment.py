"""Real processes, real sockets: the same results as in one process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.flower.deployment import Deployment, write_clients
from umbel.algorithms import FLACC, IFCA, LCFL
from umbel.client.work import LocalTraining
from umbel.data.scenarios.folder import Folder
from umbel.data.sources import Sources
from umbel.engines import EngineSettings
from umbel.networks import MLP
from umbel.runs.config import write
from umbel.runs.experiment import Experiment
from umbel.runs.folder import RunFolder
from umbel.server.clusterers import KMedoids

pytestmark = pytest.mark.xdist_group("deployment")  # one at a time: they take both cores

LOCAL = LocalTraining(epochs=2, batch_size=8)
BASE = Experiment(
    Folder("all", num_classes=3),
    MLP((8,)),
    FLACC(LOCAL, n_sep=2),
    rounds=2,
    evaluate_every=2,
    engine=EngineSettings("sequential"),  # a message starts a process: this one loads faster
)
EXPERIMENTS = {
    "flacc": BASE,
    "ifca": replace(BASE, algorithm=IFCA(num_clusters=2, local=LOCAL)),
    "lcfl": replace(BASE, algorithm=LCFL(clusterer=KMedoids(2), local=LOCAL)),
}


def in_one_process(experiment: Experiment, folder: Path) -> list[object]:
    local = replace(experiment, scenario=Folder(str(folder / "all"), num_classes=3))
    return [
        record.untimed() for _, record in local.open(Sources.default()).rounds(experiment.rounds)
    ]


def test_methods_over_three_nodes_come_to_what_they_come_to_in_one_process(tmp_path: Path) -> None:
    sites = write_clients(tmp_path / "data")
    with Deployment(tmp_path) as deployed:
        for n, site in enumerate(sites):
            memory = str(tmp_path / f"memory{n}")
            deployed.start_node(f"node{n}", data=str(site), classes=3, memory_dir=memory)
        apps = {
            name: deployed.app(name, write(replace(experiment, name=name)))
            for name, experiment in EXPERIMENTS.items()
        }
        for app in apps.values():
            deployed.run(app, clients=6)
        folders = [RunFolder(app / "runs" / f"{name}-seed0") for name, app in apps.items()]
        deployed.wait_for(lambda: all(folder.finished for folder in folders))
    for folder, experiment in zip(folders, EXPERIMENTS.values(), strict=True):
        expected = in_one_process(experiment, tmp_path / "data")
        for found, other in zip(folder.records(), expected, strict=True):
            for name, value in vars(other).items():
                if name not in ("ari", "purity", "nmi"):  # no site tells its groups
                    assert getattr(found.untimed(), name) == pytest.approx(value, abs=1e-4), name
