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


def test_a_file_of_other_clients_is_refused(tmp_path: Path) -> None:
    folder = saved(blobs(), tmp_path / "run").folder
    folder.file("clients.csv").write_text("client,test_examples\n0,8\n")
    with pytest.raises(UsageError, match=r"clients.csv: damaged: its seal .* remove clusters.csv"):
        folder.clients()
