"""Every table and figure runs at smoke size, and what is kept belongs to what is listed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

from tests.shell import Shell
from umbel.data import bearings
from umbel.data.scenarios.base import Scenario
from umbel.data.scenarios.bearing_faults import BearingFaults
from umbel.data.scenarios.together import Together
from umbel.data.views import VIEWS
from umbel.engines.precision import bf16_units
from umbel.experiment.experiment import ExperimentSettings
from umbel.experiment.toml_file import plain, structured
from umbel.papers.base import Reproduction, Size
from umbel.papers.catalogue import REPRODUCTIONS
from umbel.papers.findings import ANY, PAPERS, Claim, findings, kept_files, papers
from umbel.papers.measures import MEASURES
from umbel.papers.page import verdicts
from umbel.papers.saved_results import SavedResults

HEADLINES = {
    *("flacc-table1", "flacc-table4", "flacc-table5", "flacc-table6", "flacc-fig8"),
    *("cflgp-fig1", "cflgp-table10", "cflgp-table3", "cflgp-table7"),
    *("cflgp-fig3", "cflgp-fig4", "cflgp-fig19"),
    *("lcfl-table2", "lcfl-fig3", "lin-fig4", "lin-fig5"),
}
ALL = list(REPRODUCTIONS.values())
KEPT = [file for paper in PAPERS for file in sorted(paper.glob("kept/*.json"))]
PAGE = Path(__file__).parents[2] / "docs" / "fidelity.md"


def name(wanted: Reproduction) -> str:
    return wanted.name


def data_sets(scenario: Scenario) -> set[str]:
    """The folders in the data directory that a scenario is made from."""
    if isinstance(scenario, BearingFaults):
        return {bearings.FOLDER}
    if isinstance(scenario, Together):
        return {name for part in scenario.parts for name in data_sets(part)}
    source = getattr(scenario, "source", "digits")
    return {VIEWS[source].source if source in VIEWS else source} - {"digits", "generated"}


def missing(wanted: Reproduction) -> list[str]:
    folder = Path(os.environ.get("UMBEL_DATA_DIR", "/nowhere"))
    cells = wanted.cells("smoke")
    needed = {name for cell in cells for name in data_sets(cell.experiment.scenario)}
    return sorted(name for name in needed if not (folder / name).is_dir())


def test_every_section_of_findings_is_a_reproduction() -> None:
    assert list(findings()) == list(REPRODUCTIONS)


def test_every_headline_of_the_papers_is_there() -> None:
    assert set(REPRODUCTIONS) >= HEADLINES


@pytest.mark.parametrize("wanted", ALL, ids=name)
@pytest.mark.parametrize("size", get_args(Size))
def test_its_experiments_have_names_of_their_own(wanted: Reproduction, size: Size) -> None:
    cells = wanted.cells(size)
    places = [(cell.row, cell.column) for cell in cells]
    assert len(set(places)) == len(places)
    by_name: dict[str, ExperimentSettings] = {}
    for cell in cells:
        assert by_name.setdefault(cell.experiment.name, cell.experiment) == cell.experiment
        assert structured(plain(cell.experiment), ExperimentSettings) == cell.experiment


@pytest.mark.parametrize("size", get_args(Size))
def test_reproductions_that_share_a_name_share_the_experiment(size: Size) -> None:
    by_name: dict[str, ExperimentSettings] = {}
    for cell in (cell for wanted in ALL for cell in wanted.cells(size)):
        assert by_name.setdefault(cell.experiment.name, cell.experiment) == cell.experiment


@pytest.mark.parametrize("wanted", ALL, ids=name)
def test_its_measures_are_known(wanted: Reproduction) -> None:
    assert {measure.partition("@")[0] for measure in wanted.measures} <= set(MEASURES)


@pytest.mark.parametrize("wanted", ALL, ids=name)
def test_every_published_number_is_of_a_cell_and_a_measure(wanted: Reproduction) -> None:
    places = {place for c in wanted.cells("full") for place in ((c.row, c.column), (c.row, ANY))}
    for row, column, measure in wanted.said.published:
        assert (row, column) in places
        assert measure in wanted.measures


EVERY_KIND = (
    "flacc-table3",
    "cflgp-fig1",
    "cflgp-fig19",
    "cflgp-table1-csi",
    "lcfl-fig2",
    "lcfl-table3",
    "lin-fig4",
)
"""Some from every paper, and every kind of table and figure; `make test-thorough` runs the rest."""


def by_kind() -> Iterator[Any]:
    """Every table and figure, marked by when it is tested."""
    for one in ALL:
        often = pytest.mark.long if one.name in EVERY_KIND else pytest.mark.thorough
        yield pytest.param(one, marks=often, id=one.name)


@pytest.mark.parametrize("wanted", [*by_kind()])
def test_it_runs_at_smoke_size(wanted: Reproduction, tmp_path: Path, umbel: Shell) -> None:
    if missing(wanted):
        pytest.skip(f"needs {', '.join(missing(wanted))} in UMBEL_DATA_DIR")
    printed, _ = umbel("reproduce", wanted.name, "--size", "smoke", "--runs-dir", str(tmp_path))
    assert wanted.said.source in printed.replace("\n", " ")
    file = tmp_path / "reproduce-smoke" / f"{wanted.name}-smoke.json"
    saved = SavedResults.read(file)
    assert len(saved.cells) == len(wanted.cells("smoke"))
    assert file.with_suffix(".svg").is_file()


def test_a_name_that_is_not_known_is_refused(umbel: Shell) -> None:
    assert "did you mean flacc-table1?" in umbel.refused("reproduce", "flacc-tabel1")


def test_a_part_of_a_table_is_made_and_kept_beside_what_was_made_before(umbel: Shell) -> None:
    part = ("reproduce", "cflgp-fig1", "--size", "smoke", "--seeds", "1", "--only")
    cells = REPRODUCTIONS["cflgp-fig1"].cells("smoke")
    first, second = list(dict.fromkeys(cell.row for cell in cells))[:2]
    file = umbel.folder / "runs" / "reproduce-smoke" / "cflgp-fig1-smoke.json"
    for rows in ([first], [first, second]):
        printed, _ = umbel(*part, rows[-1])
        saved = SavedResults.read(file)
        assert list(dict.fromkeys(cell.row for cell in saved.cells)) == rows
        assert saved.every == len(cells)
        assert f"{len(saved.cells)} of {len(cells)} results; the other runs are not done" in printed
    assert saved.made.command == "umbel reproduce cflgp-fig1 --size smoke --seeds 1"
    assert "only: 'fig' is not a row or column of cflgp-fig1" in umbel.refused(*part, "fig")


@pytest.mark.thorough
@pytest.mark.skipif(not bf16_units(), reason="this processor has no bfloat16 products")
def test_results_of_both_precisions_are_kept_side_by_side(umbel: Shell) -> None:
    words = ("reproduce", "cflgp-fig1", "--size", "smoke", "--seeds", "1", "--keep", "kept")
    umbel(*words)
    umbel(*words, "--precision", "bf16")
    stems = ("cflgp-fig1-smoke", "cflgp-fig1-smoke-bf16")
    assert sorted(file.name for file in (umbel.folder / "kept").iterdir()) == sorted(
        stem + suffix for stem in stems for suffix in (".json", ".svg")
    )


@pytest.mark.parametrize("file", KEPT, ids=lambda file: file.stem)
def test_kept_results_are_of_the_experiments_that_are_listed(file: Path) -> None:
    saved = SavedResults.read(file)
    assert file in kept_files(saved.name)
    assert file.stem == f"{saved.name}-{saved.size}"
    wanted = {(cell.row, cell.column) for cell in REPRODUCTIONS[saved.name].cells(saved.size)}
    there = {(cell.row, cell.column) for cell in saved.cells}
    if saved.every is None:
        assert there == wanted
    else:  # a part, which says so
        assert saved.every == len(wanted)
        assert there
        assert there < wanted


def test_the_page_of_fidelity_is_what_the_kept_results_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == verdicts()


@pytest.mark.parametrize("claim", [claim for paper in papers() for claim in paper.claims])
def test_a_claim_names_rows_that_are_there(claim: Claim) -> None:
    assert (claim.name == "-") == bool(claim.why)
    if claim.name != "-":
        wanted = REPRODUCTIONS[claim.name]
        cells = wanted.cells("full")
        assert {*claim.ahead, *claim.behind} <= {cell.row for cell in cells}
        assert {*claim.columns} <= {cell.column for cell in cells}
        assert claim.measure.partition("@")[0] in {m.partition("@")[0] for m in wanted.measures}


def test_what_is_reversed_or_far_from_the_paper_has_a_cause() -> None:
    rows = [line.split("|")[1:-1] for line in verdicts().splitlines()]
    table = [[cell.strip() for cell in row] for row in rows if row and row[0].startswith(" [")]
    assert len(table) == len(ALL)
    for name, _, _, _, reversed_pairs, _, _, largest, cause in table:
        assert cause or (reversed_pairs in ("", "0") and ":" not in largest), name
