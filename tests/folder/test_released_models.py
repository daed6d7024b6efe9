"""The models of clusters with too few clients, which are not released."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import umbel
from tests.federations import blobs, mlp
from tests.folder.saved import LOCAL, make_run
from tests.shell import Shell
from umbel import FedEM, FixedClusters, Limits, Personal, UsageError

UNEVEN = FixedClusters((0, 1, 1, 1, 2, 2), LOCAL)
"""Clusters of one, of three and of two clients."""

WHY = r"its model is not released: 1 client, fewer than limits\.min_release = 2"


def saved(folder: Path, least: int, algorithm: Any = UNEVEN, **changes: Any) -> umbel.Result:
    run = umbel.Run(algorithm, blobs(), mlp(), limits=Limits(min_release=least), **changes)
    return run.save(folder, 2)


def test_models_of_small_clusters_are_not_there_and_all_else_is_as_before(tmp_path: Path) -> None:
    every, some = saved(tmp_path / "every", 1), saved(tmp_path / "some", 2)
    assert [each.untimed() for each in some.records] == [each.untimed() for each in every.records]
    assert some.clients == every.clients
    assert every.withheld == {}
    assert some.withheld == {0: "1 client, fewer than limits.min_release = 2"}
    assert load_file(some.folder.models.file(0)) == {}
    for ask in (
        lambda: some.model(0),
        lambda: some.model_for(0),
        lambda: some.export("torch", client=0),
    ):
        with pytest.raises(UsageError, match=f"cluster 0: {WHY}"):
            ask()
    x = torch.ones(1, 6)
    for client in range(1, 6):
        assert torch.equal(some.model_for(client)(x), every.model_for(client)(x))
    assert some.export("torch", cluster=2).num_examples


def test_personal_models_of_small_clusters_are_not_there_either(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"personal": Personal(validation_fraction=0.3, epochs=(3,))}
    every, some = (saved(tmp_path / str(least), least, **settings) for least in (1, 2))
    x = torch.ones(1, 6)
    for client in range(1, 6):
        assert torch.equal(some.model_for(client)(x), every.model_for(client)(x))
    with pytest.raises(UsageError, match=WHY):
        some.model_for(0)
    models = [
        load_file(each.folder.path / "models" / "clients.safetensors") for each in (every, some)
    ]
    rows = {tuple(row.tolist()) for row in models[0]["models"]}
    left = {tuple(row.tolist()) for row in models[1]["models"]}
    assert left < rows
    assert tuple(models[0]["models"][models[0]["index"][0]].tolist()) not in left


def test_where_clients_mix_models_one_small_cluster_withholds_all(tmp_path: Path) -> None:
    result = make_run(
        algorithm=FedEM(2, replace(LOCAL, lr=0.5)), limits=Limits(min_release=6)
    ).save(tmp_path / "run", 2)
    assert result.num_clusters == 2
    assert not (tmp_path / "run" / "models" / "clients.safetensors").exists()
    with pytest.raises(UsageError, match=r"clients mix models, one of \d clients?, fewer than"):
        result.model_for(0)


def test_clusters_that_share_a_model_count_together(tmp_path: Path) -> None:
    run = make_run(algorithm=umbel.FLACC(LOCAL, n_sep=9), limits=Limits(min_release=6))
    result = run.save(tmp_path / "run", 1)
    assert result.num_clusters > 1
    assert result.withheld == {}


def test_the_models_at_a_checkpoint_are_released_likewise(tmp_path: Path) -> None:
    run = umbel.Run(UNEVEN, blobs(), mlp(), limits=Limits(min_release=2))
    rounds = run.rounds("until-stopped", folder=tmp_path / "run")
    next(rounds)
    models = {
        n: load_file(tmp_path / "run" / "models" / f"cluster-{n}.safetensors") for n in (0, 1)
    }
    assert models[0] == {}
    assert models[1]


def test_commands_say_whose_model_is_not_released(umbel: Shell, tmp_path: Path) -> None:
    path = str(saved(tmp_path / "run", 2).folder.path)
    shown, _ = umbel("show", path)
    assert "cluster 0: the model is not released: 1 client, fewer than" in shown
    assert "limits.min_release = 2 (0)" in shown
    said = umbel.refused("export", path, "--to", "torch", "--client", "0")
    assert "limits.min_release = 2" in said
