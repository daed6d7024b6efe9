"""Doing the runs of a reproduction: once each, with the federation that their scenario builds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from umbel.algorithms import FLACC, FedAvg
from umbel.checks import UsageError
from umbel.cli.compare import make_runs
from umbel.cli.execute import OwnScreen
from umbel.client.work import LocalTraining
from umbel.data.scenarios import ROTATED_DIGITS
from umbel.data.sources import Sources
from umbel.engines import EngineSettings
from umbel.folder.execution import execute
from umbel.folder.run_folder import RunFolder
from umbel.networks import MLP
from umbel.papers.base import Cell, Reproduction, RoundsPlot, Size
from umbel.papers.findings import Findings
from umbel.papers.page import tables
from umbel.papers.runner import left_out, results, runs_left
from umbel.result.run import Experiment, finish, resume

SMALL = replace(ROTATED_DIGITS, clients=8, examples=(20,))
LOCAL = LocalTraining(epochs=1)


def experiment(name: str, rounds: int = 2) -> Experiment:
    method = FLACC(LOCAL) if name == "flacc" else FedAvg(LOCAL)
    here = EngineSettings(device="cpu")  # on a GPU no runs are side by side
    return Experiment(SMALL, MLP((8,)), method, name=name, rounds=rounds, engine=here)


def reproduction(cells: Sequence[Cell], lockstep: bool = False) -> Reproduction:
    def make(size: Size) -> Sequence[Cell]:  # noqa: ARG001
        return cells

    return Reproduction(
        Findings("digits", "Somebody", "Something", "A setting."),
        make,
        ("accuracy", "ari", "clusters"),
        (RoundsPlot("accuracy"),),
        lockstep=lockstep,
    )


BOTH = reproduction(
    [
        Cell("FLACC", "digits", experiment("flacc")),
        Cell("FedAvg", "digits", experiment("fedavg")),
        Cell("FedAvg again", "digits", experiment("fedavg")),
    ]
)


def do(
    wanted: Reproduction, runs: Path, sources: Sources, seeds: Sequence[int] = (0, 1)
) -> list[list[str]]:
    """The folders of what was done, those together that may be done side by side."""
    left = runs_left(wanted, "smoke", seeds, runs)
    assert not make_runs(left, runs, sources, OwnScreen(), jobs=1)
    return [[RunFolder.of(runs, each).path.name for each in group] for group in left]


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs of both methods under two seeds, which tests only read."""
    place = tmp_path_factory.mktemp("done")
    do(BOTH, place / "runs", Sources(None, place / "cache"))
    return place / "runs"


def test_an_experiment_that_cells_share_is_done_once(tmp_path: Path, sources: Sources) -> None:
    assert do(BOTH, tmp_path, sources) == [
        ["flacc-seed0"],
        ["flacc-seed1"],
        ["fedavg-seed0"],
        ["fedavg-seed1"],
    ]
    assert do(BOTH, tmp_path, sources) == []  # all is done


def test_a_run_is_the_one_that_umbel_run_makes(done: Path, sources: Sources) -> None:
    alone = [record.untimed() for _, record in experiment("flacc").open(sources).rounds(2)]
    there = [record.untimed() for record in RunFolder(done / "flacc-seed0").records()]
    assert there == alone


def test_results_have_a_value_a_seed_and_the_courses_that_are_drawn(done: Path) -> None:
    saved = results(BOTH, "smoke", (0, 1), done, "umbel reproduce digits")
    assert [cell.row for cell in saved.cells] == ["FLACC", "FedAvg", "FedAvg again"]
    first, second, same = saved.cells
    assert second.values == same.values
    records = [RunFolder(done / f"flacc-seed{seed}").records() for seed in (0, 1)]
    last = [100 * (run[-1].accuracy or 0.0) for run in records]
    assert first.values["accuracy"] == pytest.approx(last, abs=1e-3)
    assert first.courses["accuracy"].rounds == (1, 2)
    # FedAvg's runs are counted once, although two cells show them.
    spent = [record.seconds for run in done.iterdir() for record in RunFolder(run).records()]
    assert saved.made.seconds == pytest.approx(sum(spent), abs=0.06)


def test_side_by_side_is_the_same_as_one_after_another(
    done: Path, tmp_path: Path, sources: Sources
) -> None:
    together = replace(BOTH, lockstep=True)
    assert do(together, tmp_path, sources) == [
        ["flacc-seed0", "flacc-seed1"],
        ["fedavg-seed0", "fedavg-seed1"],
    ]
    for name in ("flacc-seed0", "fedavg-seed1"):
        one, two = (RunFolder(place / name).records() for place in (done, tmp_path))
        assert [r.accuracy for r in one] == pytest.approx([r.accuracy for r in two])


def test_another_experiment_of_that_name_is_not_taken_for_it(done: Path, sources: Sources) -> None:
    longer = reproduction([Cell("FLACC", "digits", experiment("flacc", rounds=3))])
    assert do(longer, done, sources) == []
    assert list(left_out(longer, "smoke", (0, 1), done)) == [
        f"flacc seed {seed}: {done / f'flacc-seed{seed}'}: holds another experiment "
        "(rounds was 2 and is 3); choose another --runs-dir"
        for seed in (0, 1)
    ]


def test_results_are_of_the_cells_whose_runs_are_finished(tmp_path: Path, sources: Sources) -> None:
    do(BOTH.only(["FLACC"], "smoke"), tmp_path, sources)
    saved = results(BOTH, "smoke", (0, 1), tmp_path, "umbel reproduce digits")
    assert [cell.row for cell in saved.cells] == ["FLACC"]
    assert saved.missing == 2
    assert saved.done_so_far == "1 of 3"
    assert "1 of 3 results; the other runs are not done." in tables(BOTH, saved)
    of_three_seeds = results(BOTH, "smoke", (0, 1, 2), tmp_path, "umbel reproduce digits")
    assert not of_three_seeds.cells
    do(BOTH, tmp_path, sources)
    whole = results(BOTH, "smoke", (0, 1), tmp_path, "umbel reproduce digits")
    assert len(whole.cells) == 3
    assert whole.cells[0] == saved.cells[0]
    assert whole.done_so_far == ""


def test_cells_that_are_not_asked_for_keep_the_seeds_that_are_done(
    tmp_path: Path, sources: Sources
) -> None:
    one, other = BOTH.only(["FLACC"], "smoke"), BOTH.only(["FedAvg"], "smoke")
    do(one, tmp_path, sources)
    do(other, tmp_path, sources)
    do(other, tmp_path, sources, seeds=(2,))
    before = results(BOTH, "smoke", (0, 1), tmp_path, "umbel reproduce digits")
    saved = results(BOTH, "smoke", (0, 1, 2), tmp_path, "umbel reproduce digits", other)
    assert [(cell.row, cell.num_seeds) for cell in saved.cells] == [
        ("FLACC", 2),
        ("FedAvg", 3),
        ("FedAvg again", 3),
    ]
    assert saved.cells[0] == before.cells[0]
    spent = [record.seconds for run in tmp_path.iterdir() for record in RunFolder(run).records()]
    assert saved.made.seconds == pytest.approx(sum(spent), abs=0.06)
    fewer = results(BOTH, "smoke", (0,), tmp_path, "umbel reproduce digits", one)
    assert [cell.num_seeds for cell in fewer.cells] == [1, 3, 3]


GRID = reproduction(
    [
        Cell(row, column, experiment(f"{row}-{column}"))
        for row in ("FLACC", "FedAvg")
        for column in ("digits", "letters")
        if (row, column) != ("FLACC", "letters")
    ]
)


@pytest.mark.parametrize(
    ("names", "left"),
    [
        ((), {"FLACC-digits", "FedAvg-digits", "FedAvg-letters"}),
        (("FedAvg",), {"FedAvg-digits", "FedAvg-letters"}),
        (("digits",), {"FLACC-digits", "FedAvg-digits"}),
        (("FedAvg", "FLACC", "letters"), {"FedAvg-letters"}),
    ],
)
def test_a_part_of_a_table_is_named_by_rows_and_columns(
    names: tuple[str, ...], left: set[str]
) -> None:
    assert {cell.experiment.name for cell in GRID.only(names, "smoke").cells("smoke")} == left


def test_a_part_that_is_not_there_is_refused() -> None:
    with pytest.raises(UsageError, match=r"only: 'leters' is not a row or column of digits; did"):
        GRID.only(["leters"], "smoke")
    with pytest.raises(UsageError, match=r"only: 'fedavg' is not a row .*; did you mean FedAvg\?"):
        GRID.only(["fedavg"], "smoke")
    with pytest.raises(
        UsageError, match=r"only: \['FLACC', 'letters'\] is not a choice with results"
    ):
        GRID.only(["FLACC", "letters"], "smoke")


def test_a_reproduction_in_another_precision_changes_nothing_else() -> None:
    for usual, half in zip(
        BOTH.cells("smoke"), BOTH.in_precision("bf16").cells("smoke"), strict=True
    ):
        assert half.experiment.engine == replace(usual.experiment.engine, precision="bf16")
        assert replace(half.experiment, engine=usual.experiment.engine) == usual.experiment


def test_a_run_that_was_ended_early_is_no_result_and_is_named(
    tmp_path: Path, sources: Sources
) -> None:
    for _ in execute(RunFolder.begin(tmp_path, experiment("flacc").with_seed(1)), sources):
        break
    finish(tmp_path / "flacc-seed1")
    do(BOTH, tmp_path, sources)
    saved = results(BOTH, "smoke", (0, 1), tmp_path, "umbel reproduce digits")
    assert [cell.row for cell in saved.cells] == ["FedAvg", "FedAvg again"]
    (said,) = left_out(BOTH, "smoke", (0, 1), tmp_path)
    assert said == (
        "flacc seed 1: stopped after 1 of 2 rounds: it was finished by hand; go on with "
        f"`umbel resume {tmp_path / 'flacc-seed1'} --rounds 2`"
    )
    resume(tmp_path / "flacc-seed1", rounds=2)
    assert len(results(BOTH, "smoke", (0, 1), tmp_path, "umbel reproduce digits").cells) == 3
    assert list(left_out(BOTH, "smoke", (0, 1), tmp_path)) == []
