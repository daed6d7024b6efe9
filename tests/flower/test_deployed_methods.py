"""Real processes and sockets: methods, hostile nodes and other backbones, on one SuperLink."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.flower.deployed_runs import BASE, LOCAL
from tests.flower.deployment import Deployment
from umbel.algorithms import LCFL
from umbel.data.scenarios.folder import Folder
from umbel.data.sources import Sources
from umbel.experiment.toml_file import write
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
