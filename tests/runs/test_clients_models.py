"""The models that a saved run has for its clients."""

from __future__ import annotations

import errno
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode

import umbel
from tests.federations import blobs, mlp
from tests.runs.saved import LOCAL, build, make_run
from umbel import FLACC, FedAvg, FedEM, PFedMe, UsageError
from umbel.files.atomic import WITHIN


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


class Maxima(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts how often the largest value of a tensor of this many numbers is looked for."""

    def __init__(self, size: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.size, self.count = size, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.max.default:
            self.count += args[0].numel() == self.size
        return func(*args, **(kwargs or {}))


def test_saving_many_models_goes_through_whole_numbers_once(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    pairs = [(rng.integers(0, 5, (6, 3)), rng.integers(0, 2, 6)) for _ in range(4)]
    data = umbel.Federation.from_arrays(pairs, num_classes=2)
    network = umbel.Net(
        lambda: nn.Sequential(nn.Embedding(5, 2), nn.Flatten(), nn.Linear(6, 2)),
        umbel.CLASSIFICATION,
    )
    run = umbel.Run(umbel.LocalOnly(LOCAL), data, network)
    with Maxima(run.divided.train.x.numel()) as maxima:
        result = run.save(tmp_path / "run", 1)
    assert [(each.label, each.largest) for each in result.made_for] == [(n, 4) for n in range(4)]
    assert maxima.count == 1


def test_results_are_not_to_be_removed_where_only_the_net_is_not_known(tmp_path: Path) -> None:
    make_run(net=umbel.Net(lambda: build())).save(tmp_path / "mine", 1)
    result = umbel.load(tmp_path / "mine")
    with pytest.raises(UsageError, match=r"or --net of umbel export$"):
        result.model(0)
    with pytest.raises(UsageError, match=r"or --net of umbel export$"):
        result.model_for("0")


def test_models_of_many_clusters_are_on_disk_at_once_before_clients_are_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settled: list[str] = []
    opened = os.open

    def noting(path: str | Path, *given: int, **named: int) -> int:
        if given[0] == os.O_RDONLY:
            file = Path(path)  # while it is incomplete, in a folder named after it
            incomplete = file.parent.name.removesuffix(".partial")[1:].rpartition(".")[0]
            settled.append(incomplete if file.name == WITHIN else file.name)
        return opened(path, *given, **named)

    run = make_run(algorithm=umbel.LocalOnly(LOCAL))
    monkeypatch.setattr("os.open", noting)
    result = run.save(tmp_path / "run", 1)
    monkeypatch.undo()
    files = [f"cluster-{number}.safetensors" for number in range(result.num_clusters)]
    assert sorted(name for name in settled if name in files) == sorted(files)
    assert settled.count("models") == 1
    assert settled.index("models") < settled.index("clusters.csv")


@pytest.mark.parametrize("linking", [True, False], ids=["links", "no links"])
def test_clusters_that_share_a_model_share_a_file(
    linking: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(errno.ENOTSUP, "the file system has no links")

    if not linking:
        monkeypatch.setattr("os.link", refused)
    run = make_run(algorithm=FLACC(LOCAL, n_sep=9))
    *_, (state, _) = run.rounds(1)  # clusters are told apart before their models are
    result = run.save(tmp_path / "run", 1)
    files = sorted((tmp_path / "run" / "models").iterdir())
    assert len(files) == result.num_clusters > 1
    assert len({file.stat().st_ino for file in files}) == (1 if linking else len(files))
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


def test_models_that_another_process_reads_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = make_run().save(tmp_path / "run", 1).folder.path
    models = folder / "models"
    (models / ".nfs0001").touch()  # as NFS has it, until the file is closed
    (models / "cluster-9.safetensors").touch()
    monkeypatch.setattr("shutil.rmtree", lambda *_, **__: None)
    assert umbel.resume(folder, make_run(), rounds=2).model(0) is not None
    assert not (models / "cluster-9.safetensors").exists()
