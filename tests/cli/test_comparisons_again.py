"""Comparisons and runs that meet files, folders and settings of another origin."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
import torch

import umbel as library
from tests.shell import Shell
from umbel.algorithms.base import State
from umbel.checks import UsageError
from umbel.cli.compare import Seeds
from umbel.client.metrics import Predictions, _own
from umbel.experiment.layers import parse_setting
from umbel.experiment.sweep import sweep
from umbel.experiment.toml_file import plain
from umbel.folder.experiment_file import ExperimentFile
from umbel.folder.run_folder import RunFolder
from umbel.result.run import read
from umbel.testing import assert_same_state

NOTES = '# my own notes\nextends = "both/fedavg.toml"\nname = "mine"\n'


def test_controls_are_waited_for_with_the_sizes_of_their_own_seed(
    umbel: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    umbel.clustering()
    umbel("compare", "both", "--seeds", "2", "--control")
    held = sorted((umbel.folder / "runs" / "both").glob("*control*"))
    assert len(held) == 2
    asked: list[Seeds] = []
    usual = Seeds.make

    def busy_at_first(group: Seeds, screen: object) -> object:
        made = usual(group, screen)  # type: ignore[arg-type]
        if "control" not in group.table["name"] or group in asked:
            return made
        asked.append(group)
        return replace(made, parts=(), busy=[replace(group, seeds=(n,)) for n in group.seeds])

    monkeypatch.setattr(Seeds, "make", busy_at_first)
    printed, _ = umbel("compare", "both", "--seeds", "2", "--control")
    assert "random clusters" in printed
    assert asked


def test_controls_start_with_the_federation_of_their_own_seed(umbel: Shell) -> None:
    (umbel.folder / "growing_of_tests.py").write_text(
        "from dataclasses import dataclass\n"
        "import umbel\n"
        "from umbel.testing import blobs\n\n"
        "@dataclass(frozen=True)\n"
        "class Growing(umbel.Scenario):\n"
        "    def build(self, seed, sources):\n"
        "        return blobs([20] * (4 + seed))\n"
    )
    umbel.monkeypatch.syspath_prepend(umbel.folder)
    umbel.clustering()
    for name in ("ifca", "fedavg"):
        file = umbel.folder / "both" / f"{name}.toml"
        table = file.read_text().replace("clients = 8\nexamples = [40]\n", "")
        file.write_text(table.replace("rotated-digits", "growing_of_tests:Growing"))
    umbel("compare", "both", "--seeds", "2", "--control")
    held = sorted((umbel.folder / "runs" / "both").glob("*control*"))
    assert [folder.name[-1] for folder in held] == ["0", "1"]


def test_another_experiment_in_a_folder_is_told_before_anything_is_trained(umbel: Shell) -> None:
    umbel("run", "both/flacc.toml", "--runs-dir", "runs/both", "--seed", "1", "--set", "rounds=1")
    said = umbel.refused("compare", "both", "--seeds", "2")
    assert "flacc-seed1: holds another experiment (rounds is 1, not 4)" in said
    assert not (umbel.folder / "runs" / "both" / "fedavg-seed0").exists()


def test_finished_runs_are_not_locked_to_be_shown(
    umbel: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    umbel("compare", "both", "--seeds", "1")

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied", ".lock")

    monkeypatch.setattr(RunFolder, "locked", refuse)
    assert "flacc" in umbel("compare", "both", "--seeds", "1")[0]


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


def test_values_that_are_written_alike_are_two(umbel: Shell) -> None:
    values = "personal.parameters=['a_b'],['a','b']"
    found = sweep(umbel.folder / "both" / "fedavg.toml", [values]).experiments
    assert len({experiment.name for experiment in found}) == 2


def test_one_set_is_one_setting() -> None:
    with pytest.raises(UsageError, match="is not one setting: give each a --set of its own"):
        parse_setting("rounds=1\nparticipation=1.0")


@pytest.mark.parametrize("data", [(), ("--set", "scenario.name=rotated-mnist", "--data-dir", ".")])
def test_a_file_of_the_users_is_kept(data: tuple[str, ...], umbel: Shell) -> None:
    folder = umbel.folder / "runs" / "mine-seed0"
    folder.mkdir(parents=True)
    file = folder / "experiment.toml"
    file.write_text(NOTES.replace("both/", "../../both/"))
    before = file.read_text()
    said = umbel.refused("run", str(file), *data)
    assert "is not a file that umbel wrote, and is kept" in said or data
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


@dataclass(frozen=True)
class Remembering(State):
    history: tuple[tuple[float, ...], ...] = ()


def test_numbers_in_tuples_are_compared_up_to_rounding() -> None:
    models, labels = torch.zeros(1, 2), torch.zeros(3, dtype=torch.long)
    first = Remembering(models, labels, ((1.0, float("nan")), (0.3,)))
    second = Remembering(models, labels, ((1.0 + 1e-15, float("nan")), (0.1 + 0.2,)))
    assert_same_state(first, second, 1e-9)
    with pytest.raises(AssertionError, match="history differs"):
        assert_same_state(first, replace(second, history=((1.0,), (0.3,))), 1e-9)


def test_a_table_without_the_target_names_the_setting(umbel: Shell) -> None:
    pytest.importorskip("pandas")
    (umbel.folder / "sites.csv").write_text("site,age\n" + "a,1\nb,2\n" * 10)
    said = umbel.refused("advise", "sites.csv", "--set", "scenario.client=site")
    assert "which column is to be predicted; columns: 'site', 'age'; write --set scenario" in said


def test_tables_of_results_are_short_in_notebooks(umbel: Shell) -> None:
    umbel("compare", "both", "--seeds", "2")
    runs = library.results(umbel.folder / "runs" / "both").runs
    assert repr(runs).startswith("Table: 4 rows of folder, name, algorithm")
    assert runs._repr_html_().count("<tr>") == 5


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
