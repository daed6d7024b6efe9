"""The results of runs as tables."""

from __future__ import annotations

import gc
import shutil
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch

import umbel
from tests.runs.saved import make_run
from tests.shell import SMALL
from umbel.data.sources import Sources
from umbel.run.records import Record


@pytest.fixture
def runs(tmp_path: Path, sources: Sources) -> Path:
    """A comparison of two finished runs and one that was stopped after two rounds."""
    file = tmp_path / "fedavg.toml"
    file.write_text(SMALL.format(name="fedavg"))
    for name, seed in (("fedavg", 0), ("fedavg", 1), ("ifca", 0)):
        settings = [f"algorithm.name={name}", f"name={name}", f"seed={seed}"]
        folder = umbel.RunFolder.begin(tmp_path / "runs" / "both", umbel.read(file, settings))
        for record in umbel.execute(folder, sources):
            if name == "ifca" and record.round == 1:
                break
    return tmp_path / "runs"


def test_there_is_a_row_a_run_finished_or_not(runs: Path) -> None:
    found = umbel.results(runs / "both")
    assert len(found) == 3
    assert found.column("name") == ["fedavg", "fedavg", "ifca"]
    assert found.column("seed") == [0, 1, 0]
    assert found.column("finished") == [True, True, False]
    assert found.column("rounds") == [4, 4, 2]
    assert found.rows[0]["accuracy"] == umbel.load(runs / "both/fedavg-seed0").records[-1].accuracy
    assert all(row["megabytes_up"] > 0 for row in found)
    assert [row["folder"] for row in umbel.results(runs)] == found.column("folder")


def test_only_the_table_that_is_asked_for_is_made(runs: Path) -> None:
    for name in ("runs", "rounds", "clients"):
        found = umbel.results(runs)
        assert len(getattr(found, name)) > 0
        assert {"runs", "rounds", "clients"} & vars(found).keys() == {name}
    assert repr(found) == "Results: 3 runs, 10 rounds, 16 clients"


def test_results_whose_folders_are_gone_say_so(runs: Path) -> None:
    found = umbel.results(runs)
    shutil.rmtree(runs)
    assert repr(found) == "Results: 3 runs, which can't all be read"
    assert "which can&#x27;t all be read" in found._repr_html_()


def test_records_of_one_run_are_held_at_a_time(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read, first = umbel.RunFolder.records, list[weakref.ref[Record]]()
    held: list[int] = []

    def counted(folder: umbel.RunFolder) -> list[Record]:
        gc.collect()
        held.append(sum(record() is not None for record in first))
        records = read(folder)
        first.append(weakref.ref(records[0]))
        return records

    monkeypatch.setattr(umbel.RunFolder, "records", counted)
    for name in ("runs", "rounds"):
        assert len(getattr(umbel.results(runs), name)) > 0
    assert len(held) > 3
    assert max(held) <= 1


def test_settings_in_which_runs_differ_are_columns(runs: Path) -> None:
    found = umbel.results(runs)
    assert found.column("algorithm.name") == ["fedavg", "fedavg", "ifca"]
    assert found.column("algorithm.num_clusters") == [None, None, 2]
    assert "scenario.clients" not in found.columns
    assert "algorithm.name" not in umbel.results(runs / "both" / "ifca-seed0").columns


def test_rounds_and_clients_are_tables_of_their_own(runs: Path) -> None:
    found = umbel.results(runs)
    assert found.rounds.column("round") == [1, 2, 3, 4, 1, 2, 3, 4, 1, 2]
    assert found.rounds.column("missing") == [0] * 10
    assert isinstance(found.rounds.rows[0]["num_clusters"], int)
    assert len(found.clients) == 16  # of the finished runs
    which = ("folder", "name", "algorithm", "seed")
    known = ("client", "group", "cluster", "examples", "accuracy", "loss", "test_examples")
    assert found.clients.columns == (*which, *known)
    assert (found.clients.rows[0]["name"], found.clients.rows[0]["client"]) == ("fedavg", "0")
    assert 0 <= found.clients.rows[0]["accuracy"] <= 1
    pytest.importorskip("pandas")
    assert found.to_pandas().groupby("algorithm")["seed"].count().to_dict() == {
        "fedavg": 2,
        "ifca": 1,
    }


@pytest.fixture
def two(tmp_path: Path, sources: Sources) -> Path:
    """Two comparisons of the same methods, the second one of more rounds."""
    file = tmp_path / "fedavg.toml"
    file.write_text(SMALL.format(name="fedavg"))
    for place, rounds in (("short", 1), ("long", 4)):
        for name in ("fedavg", "ifca"):
            settings = [f"algorithm.name={name}", f"name={name}", f"rounds={rounds}"]
            experiment = umbel.read(file, settings)
            folder = umbel.RunFolder.begin(tmp_path / "runs" / place, experiment)
            assert len(list(umbel.execute(folder, sources))) == rounds
    return tmp_path / "runs"


def test_runs_of_two_comparisons_are_judged_by_the_baselines_of_their_own(two: Path) -> None:
    together = {row["folder"]: row["worse_than_one_model"] for row in umbel.results(two)}
    for place in ("short", "long"):
        for row in umbel.results(two / place):
            assert together[row["folder"]] == row["worse_than_one_model"]


def test_two_runs_of_one_name_and_seed_are_not_compared_as_if_they_were_one(two: Path) -> None:
    with pytest.raises(umbel.UsageError, match="is fedavg with seed 0, and so is") as refused:
        umbel.results(two).differences()
    assert str(two / "short" / "fedavg-seed0") in str(refused.value)
    assert str(two / "long" / "fedavg-seed0") in str(refused.value)
    assert len(umbel.results(two / "short").differences()) == 1


def test_a_folder_without_runs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(umbel.UsageError, match="is not the folder of a run, or a folder of"):
        umbel.results(tmp_path)
    begun = umbel.read(umbel.find_experiment("fedavg-digits"))
    umbel.RunFolder.begin(tmp_path, begun)
    (row,) = umbel.results(tmp_path)
    assert (row["rounds"], row["accuracy"], row["megabytes_up"]) == (0, None, None)


def test_groups_below_zero_are_numbers_as_others_are(tmp_path: Path) -> None:
    data = [(np.eye(4, dtype=np.float32), np.arange(4) % 2)] * 4
    groups = [1, -1, 1, -1]
    federation = umbel.Federation.from_arrays(data, groups=groups, test_fraction=0.25)
    net = umbel.Net(lambda: torch.nn.Linear(4, 2))
    umbel.Run(umbel.FedAvg(), federation, net).save(tmp_path / "run", 1)
    assert umbel.results(tmp_path / "run").clients.column("group") == groups


class Absent(umbel.FedAvg):
    """FedAvg with a measure that has the name of a property of records."""

    def measure(self, state: umbel.State) -> dict[str, float]:  # noqa: ARG002
        return {"num_absent": 0.75}


def test_a_methods_measure_is_no_count_whatever_its_name(tmp_path: Path) -> None:
    make_run(algorithm=Absent()).save(tmp_path / "run", 1)
    assert umbel.results(tmp_path / "run").rounds.column("num_absent") == [0.75]
