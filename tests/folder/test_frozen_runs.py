"""Runs of networks with frozen values: small files, and a refusal where those values are others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import nn

import umbel
from tests.federations import blobs
from tests.frozen import Pretrained, Trunk, write_trunk
from umbel.algorithms import FedAvg
from umbel.checks import UsageError
from umbel.client.work import LocalTraining
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.data.sources import Sources
from umbel.experiment.toml_file import write
from umbel.folder.execution import execute
from umbel.folder.run_folder import RunFolder
from umbel.networks import MLP
from umbel.result.run import Experiment, load, read

LOCAL = LocalTraining(lr=0.1, epochs=1, batch_size=8)
HEAD = 8 * 3 + 3


def build() -> nn.Module:
    return Trunk()


def net_of(seed: int = 0) -> umbel.Net:
    def seeded() -> nn.Module:
        module = build()
        torch.manual_seed(seed)
        nn.init.normal_(module.get_parameter("trunk.0.weight"))
        return module

    return umbel.Net(build if seed == 0 else seeded, trained=["head.*"])


def run_of(net: umbel.Net) -> umbel.Run:
    return umbel.Run(FedAvg(LOCAL), blobs(), net)


def experiment(tmp_path: Path, seed: int = 0) -> Experiment:
    file = write_trunk(tmp_path / "trunk.safetensors", 64, seed)
    return Experiment(
        replace(ROTATED_DIGITS, clients=4, examples=(20, 40)),
        Pretrained(file=str(file)),
        FedAvg(LOCAL),
        name="frozen",
        rounds=2,
    )


def test_files_hold_what_trains_alone(tmp_path: Path) -> None:
    result = run_of(net_of()).save(tmp_path / "run", 2)
    tensors = load_file(tmp_path / "run" / "checkpoint.safetensors")
    assert tensors["models"].shape == (1, HEAD)
    assert set(load_file(tmp_path / "run" / "models" / "cluster-0.safetensors")) == {
        "head.weight",
        "head.bias",
    }
    assert result.records[0].bytes_down == result.records[0].bytes_up - 8 * 6
    assert result.records[0].bytes_down == 6 * 4 * HEAD


def test_a_finished_run_builds_its_network_again(tmp_path: Path) -> None:
    net = umbel.Net(build, trained=["head.*"])
    saved = run_of(net).save(tmp_path / "run", 2)
    assert saved.folder.experiment.model.trained == ("head.*",)  # type: ignore[attr-defined]
    module, x = load(tmp_path / "run").model(0), torch.randn(5, 6)
    torch.testing.assert_close(module(x), saved.model(0)(x))
    assert torch.equal(module.get_parameter("trunk.0.weight"), net.modules.frozen["trunk.0.weight"])


def test_other_frozen_values_are_refused(tmp_path: Path) -> None:
    run_of(net_of()).save(tmp_path / "run", 2)
    with pytest.raises(UsageError, match="the frozen values of the module are different"):
        umbel.resume(tmp_path / "run", run_of(net_of(seed=1)), rounds=4)
    with pytest.raises(UsageError, match="the frozen values of the module are different"):
        umbel.load(tmp_path / "run", net_of(seed=1))


def test_a_backbone_of_another_file_is_refused(tmp_path: Path) -> None:
    first = experiment(tmp_path)
    folder = RunFolder.create(tmp_path / "run", first)
    list(execute(folder, Sources.default()))
    assert load(tmp_path / "run").model(0)(torch.zeros(1, 64)).shape == (1, 10)
    experiment(tmp_path, seed=1)  # the file is written over
    said = "the frozen values of the network are not those that the run was trained with$"
    with pytest.raises(UsageError, match=said):
        load(tmp_path / "run").model(0)
    with pytest.raises(UsageError, match="frozen values of the network: changed"):
        umbel.resume(tmp_path / "run", rounds=4)


def test_freezing_every_parameter_is_refused_by_its_name() -> None:
    whole = Experiment(ROTATED_DIGITS, MLP((8,), freeze=("*",)), FedAvg(LOCAL))
    with pytest.raises(UsageError, match=r"model\.freeze: .* that leave a parameter to train"):
        whole.open(Sources.default())


def test_freeze_in_a_file_freezes_and_costs_no_traffic(tmp_path: Path) -> None:
    file = tmp_path / "some.toml"
    plain = Experiment(ROTATED_DIGITS, MLP((8,)), FedAvg(LOCAL))
    assert "freeze" not in write(plain)
    file.write_text(write(replace(plain, model=MLP((8,), freeze=("1.*",)))))
    again = read(file)
    assert again.model == MLP((8,), freeze=("1.*",))
    net = again.net_of(again.scenario.build(0, Sources.default()).form())
    assert [entry.name for entry in net.layout.weights] == ["3.weight", "3.bias"]
    file.write_text(write(replace(plain, model=MLP((8,), freeze=("body.*",)))))
    with pytest.raises(UsageError, match=r"freeze: 'body\.\*' is not a pattern for any of 1\."):
        read(file).open(Sources.default())
