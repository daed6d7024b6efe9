"""Sites that lack the last classes, or a category, are told which setting makes them alike."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from flwr.app import Context, RecordDict

from tests.algorithms.test_contract import LOCAL
from tests.flower.small import SMALL, site
from umbel.algorithms import FedAvg
from umbel.checks import UsageError
from umbel.data.federation import Federation
from umbel.flower import Settings, serve, site_clients
from umbel.flower.client_owners import Owners
from umbel.folder.run_folder import RunFolder

EXPERIMENT = replace(SMALL, algorithm=FedAvg(LOCAL), rounds=1)


def having(folder: Path, classes: int, told: bool = False) -> Federation:
    """A site's folder of one client, whose labels are of this many classes."""
    folder.mkdir()
    x = np.random.default_rng(classes).random((40, 64), dtype=np.float32)
    np.savez(folder / f"{folder.name}.npz", x=x, y=np.arange(40) % classes)
    config = {"data": str(folder), **({"classes": 10} if told else {})}
    return site_clients(Context(1, 1, config, RecordDict(), {}))  # type: ignore[arg-type]


def served(folder: Path, *sites: Federation, clients: int = 1) -> RunFolder:
    settings = Settings(clients, patience=0.6, runs_dir=str(folder / "runs"))
    return serve(site(folder, *sites, of=EXPERIMENT), EXPERIMENT, settings)


def test_of_two_sites_that_count_their_classes_apart_the_message_names_classes(
    tmp_path: Path,
) -> None:
    sites = having(tmp_path / "a", 10), having(tmp_path / "b", 8)
    with pytest.raises(UsageError) as refused:
        served(tmp_path, *sites)
    said = str(refused.value)
    assert "num_outputs is 10, num_classes is 10 at 1 node; num_outputs is 8, num_class" in said
    assert "set classes = 10 in the settings of its node" in said


def test_a_site_that_lacks_the_last_classes_is_told_of_classes_when_it_is_left_out(
    tmp_path: Path,
) -> None:
    sites = having(tmp_path / "a", 10), having(tmp_path / "b", 10), having(tmp_path / "c", 8)
    run = served(tmp_path, *sites)
    (said,) = Owners.read(run.file("nodes.json"), 60.0).refused.values()
    assert "set classes = 10 in the settings of its node" in said


def test_with_classes_all_sites_take_part(tmp_path: Path) -> None:
    sites = having(tmp_path / "a", 10), having(tmp_path / "b", 8, told=True)
    assert [client.name for client in served(tmp_path, *sites, clients=2).clients()] == ["a", "b"]
