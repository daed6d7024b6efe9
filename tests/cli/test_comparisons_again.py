"""Comparisons and runs that meet files, folders and settings of another origin."""

from __future__ import annotations

import pytest
import torch

from tests.shell import Shell
from umbel.checks import UsageError
from umbel.client.metrics import Predictions, _own
from umbel.experiment.sweep import sweep
from umbel.experiment.toml_file import plain
from umbel.folder.run_folder import ExperimentFile
from umbel.result.run import read

NOTES = '# my own notes\nextends = "both/fedavg.toml"\nname = "mine"\n'


def test_another_experiment_in_a_folder_is_told_before_anything_is_trained(umbel: Shell) -> None:
    umbel("run", "both/flacc.toml", "--runs-dir", "runs/both", "--seed", "1", "--set", "rounds=1")
    said = umbel.refused("compare", "both", "--seeds", "2")
    assert "flacc-seed1: holds another experiment (rounds was 1 and is 4)" in said
    assert not (umbel.folder / "runs" / "both" / "fedavg-seed0").exists()


@pytest.mark.parametrize("order", [1, -1])
def test_no_setting_is_undone_by_a_name_that_comes_later(order: int, umbel: Shell) -> None:
    settings = ["algorithm.local.lr=0.3", "algorithm.name=ifca"][::order]
    experiment = read(umbel.folder / "both" / "fedavg.toml", settings)
    assert type(experiment.algorithm).__name__ == "IFCA"
    assert plain(experiment)["algorithm"]["local"]["lr"] == 0.3
    nested = ["algorithm.clusterer.name=dbscan", "algorithm.clusterer.eps=0.3"]
    settings = [*nested, "algorithm.name=lcfl"][::order]
    experiment = read(umbel.folder / "both" / "fedavg.toml", settings)
    found = plain(experiment)["algorithm"]["clusterer"]
    assert (found["name"], found["eps"]) == ("dbscan", 0.3)
    whole = ["algorithm.num_clusters=3", 'algorithm={name="lcfl"}'][::order]
    experiment = read(umbel.folder / "both" / "fedavg.toml", whole)
    assert plain(experiment)["algorithm"]["num_clusters"] == 3
    several = ["algorithm.local.lr=0.1,0.2", "algorithm.name=fedavg,ifca"][::order]
    assert len(sweep(umbel.folder / "both" / "fedavg.toml", several).experiments) == 4


def test_a_file_of_the_users_is_kept(umbel: Shell) -> None:
    folder = umbel.folder / "runs" / "mine-seed0"
    folder.mkdir(parents=True)
    file = folder / "experiment.toml"
    file.write_text(NOTES.replace("both/", "../../both/"))
    before = file.read_text()
    said = umbel.refused("run", str(file))
    assert "is not a file that umbel wrote, and is kept" in said
    assert file.read_text() == before
    assert ExperimentFile(file).is_ours is False


def test_a_runs_folder_is_no_comparison(umbel: Shell) -> None:
    umbel("run", "both/fedavg.toml")
    said = umbel.refused("compare", "runs/fedavg-seed0")
    assert (
        "folder: 'runs/fedavg-seed0' is one run: `umbel show runs/fedavg-seed0` prints it" in said
    )
    assert not list((umbel.folder / "runs" / "fedavg-seed0").glob("*-seed*"))


def one(targets: object) -> float:
    """Takes too little."""
    return float(bool(targets))


def test_a_metric_that_takes_something_else_says_what_it_should_take() -> None:
    found = Predictions(torch.zeros(1).numpy(), torch.zeros(1, 2).double().numpy())
    with pytest.raises(UsageError, match=r"one' does not take \(targets, predictions\)"):
        _own(f"{__name__}:one", found)


def test_a_table_without_the_target_names_the_setting(umbel: Shell) -> None:
    pytest.importorskip("pandas")
    (umbel.folder / "sites.csv").write_text("site,age\n" + "a,1\nb,2\n" * 10)
    said = umbel.refused("advise", "sites.csv", "--set", "scenario.client=site")
    assert "which column is to be predicted; columns: 'site', 'age'; write --set scenario" in said


def test_runs_of_another_release_are_told_of_before_others_join_them(
    umbel: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    umbel("compare", "both", "--seeds", "1")
    _, said = umbel("compare", "both", "--seeds", "1")
    assert "releases" not in said
    monkeypatch.setattr("umbel.version.__version__", "99.0")
    _, said = umbel("compare", "both", "--seeds", "1")
    assert "2 runs in runs/both with umbel 0" in said
    assert " (here 99.0): releases may compute differently: install the same one" in said
