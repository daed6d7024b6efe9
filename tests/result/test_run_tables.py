"""The results of runs as tables."""

from __future__ import annotations

from pathlib import Path

import pytest

import umbel
from tests.shell import SMALL
from umbel.data.sources import Sources


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
