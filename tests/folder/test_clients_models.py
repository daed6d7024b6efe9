"""The models that a saved run has for its clients."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import umbel
from tests.federations import blobs, mlp
from tests.folder.saved import LOCAL, make_run
from umbel import FLACC, FedAvg, FedEM, PFedMe, UsageError


def test_clients_get_their_personal_model_or_mixture(tmp_path: Path) -> None:
    methods = (
        PFedMe(local=replace(LOCAL, lr=0.05)),
        umbel.PerFedAvg(alpha=0.1),
        FedEM(2, replace(LOCAL, lr=0.5)),
        umbel.LocalOnly(LOCAL),
        umbel.IFCA(2, LOCAL),
    )
    test = blobs().test
    for algorithm in methods:
        result = make_run(algorithm=algorithm).save(tmp_path / type(algorithm).__name__, 3)
        models = [result.model_for(client) for client in range(6)]
        for client, row in enumerate(result.clients):
            x, y = test.of(client)
            assert not models[client].training
            loss = nn.functional.cross_entropy(models[client](x), y)
            assert loss.item() == pytest.approx(row.loss, rel=1e-4)
        x, _ = test.of(0)
        assert not torch.allclose(models[0](x), models[1](x))
        with pytest.raises(UsageError, match=r"client: 'site-3' is not known; known: 0, 1, 2, 3"):
            result.model_for("site-3")


def test_clients_with_names_are_known_by_their_numbers_too(tmp_path: Path) -> None:
    data = blobs()
    clients = range(data.num_clients)
    pairs = {f"site-{n}": data.train.of(n) for n in clients}
    named = umbel.Federation.from_arrays(pairs, num_classes=data.num_classes, test_fraction=0.2)
    result = umbel.Run(umbel.LocalOnly(LOCAL), named, mlp()).save(tmp_path / "run", 1)
    x = data.train.of(0)[0]
    assert torch.equal(result.model_for(3)(x), result.model_for("site-3")(x))
    assert torch.equal(result.model_for(np.int64(3))(x), result.model_for(3)(x))  # type: ignore[arg-type]
    for client in (-1, data.num_clients, True):
        with pytest.raises(UsageError, match=f"client: '{client}' is not known"):
            result.model_for(client)


def test_models_that_clients_share_are_saved_once(tmp_path: Path) -> None:
    result = make_run(algorithm=FedEM(2, LOCAL)).save(tmp_path / "mine", 2)
    models, weights = result.folder.models.mixture(3)
    assert models.shape == (2, make_run().net.layout.num_values)
    assert float(weights.sum()) == pytest.approx(1)
    shared = make_run(algorithm=FedAvg(LOCAL)).save(tmp_path / "one", 2)
    assert [file.name for file in (tmp_path / "one" / "models").iterdir()] == [
        "cluster-0.safetensors"
    ]
    assert torch.equal(shared.model_for(2)[0].weight, shared.model(0)[0].weight)  # type: ignore[index]


def test_the_models_of_a_mixture_share_their_frozen_values(tmp_path: Path) -> None:
    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(6, 200), nn.Linear(200, 200), nn.Linear(200, 3))

    net = umbel.Net(build, trained=["2.*"])
    result = umbel.Run(FedEM(3, LOCAL), blobs(), net).save(tmp_path / "run", 1)
    models = result.model_for(0).models
    assert isinstance(models, nn.ModuleList)

    def places(name: str) -> set[int]:
        return {model.get_parameter(name).data_ptr() for model in models}

    assert len(places("0.weight")) == 1
    assert len(places("2.weight")) == 3
    # A user may change a model that is handed out: another has values of its own.
    assert not places("0.weight") & {result.model(0).get_parameter("0.weight").data_ptr()}
    mixture, one = result.export("torch", client=0), result.export("torch", cluster=0)
    assert mixture.file.stat().st_size < 2 * one.file.stat().st_size


def test_clusters_that_share_a_model_share_a_file(tmp_path: Path) -> None:
    run = make_run(algorithm=FLACC(LOCAL, n_sep=9))
    *_, (state, _) = run.rounds(1)  # clusters are told apart before their models are
    result = run.save(tmp_path / "run", 1)
    files = sorted((tmp_path / "run" / "models").iterdir())
    assert len(files) == result.num_clusters > 1
    assert len({file.stat().st_ino for file in files}) == 1
    assert len({file.read_bytes() for file in files}) == 1
    labels = [state.labels.tolist()[client] for client in range(6)]
    for client, row in enumerate(result.clients):
        assert result.made_for[row.cluster].label == labels[client]
        x = torch.zeros(1, 6)
        assert torch.equal(result.model_for(client)(x), result.model(0)(x))
    assert [made.label for made in result.made_for] == sorted(set(labels), key=labels.index)
    shutil.copytree(tmp_path / "run", tmp_path / "copied")
    assert umbel.load(tmp_path / "copied").made_for == result.made_for
    longer = umbel.resume(tmp_path / "run", run, rounds=2)
    assert len([*(tmp_path / "run" / "models").iterdir()]) == longer.num_clusters
