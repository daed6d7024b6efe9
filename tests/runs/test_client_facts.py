"""What a run's folder keeps of its clients beside their results."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from umbel.algorithms import FedAvg
from umbel.checks import UsageError
from umbel.client.work import LocalTraining
from umbel.data.federation import Federation
from umbel.result.run import Result, Run
from umbel.result.tables import results
from umbel.testing import blobs, mlp

WRISTS = ("left", "=right", 'a "quoted", one', "left", "", "left", "right", "right")


def saved(federation: Federation, folder: Path) -> Result:
    return Run(FedAvg(LocalTraining(epochs=1)), federation, mlp()).save(folder, rounds=1)


def test_test_examples_and_attributes_of_each_client_are_kept(tmp_path: Path) -> None:
    run = saved(replace(blobs(), attributes={"+wrist": WRISTS}), tmp_path / "run")
    assert [client.attributes["+wrist"] for client in run.clients] == [*WRISTS]
    assert {client.test_examples for client in run.clients} == {8}
    (row, *_) = results(tmp_path / "run").runs
    assert "ami_+wrist" in row
    (first, *_) = results(tmp_path / "run").clients
    assert (first["attribute_+wrist"], first["test_examples"]) == ("left", 8)


def test_a_run_without_attributes_is_the_same_but_for_that_file(tmp_path: Path) -> None:
    attributes = {"wrist": WRISTS}
    plain, known = (
        saved(replace(blobs(), attributes=each), tmp_path / name).folder
        for name, each in (("plain", {}), ("known", attributes))
    )
    for name in ("clusters.csv", "models/cluster-0.safetensors"):
        assert plain.file(name).read_bytes() == known.file(name).read_bytes()
    assert plain.file("clients.csv").read_text().splitlines()[:2] == ["client,test_examples", "0,8"]


@pytest.mark.parametrize("text", ["client,other\n0,8\n", "client,test_examples\n0,8\n", "\x00"])
def test_a_file_of_other_clients_is_refused(text: str, tmp_path: Path) -> None:
    folder = saved(blobs(), tmp_path / "run").folder
    folder.file("clients.csv").write_text(text)
    with pytest.raises(UsageError, match=r"clients.csv: damaged: its seal .* remove clusters.csv"):
        folder.clients()
    folder.file("clients.seal").unlink()
    with pytest.raises(UsageError, match=r"damaged: not a row client,test_examples for each"):
        folder.clients()
