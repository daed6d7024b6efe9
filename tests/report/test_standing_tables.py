"""What a comparison of clients without planted groups says of them, in a terminal and on a page."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from tests.report.pages import Page
from umbel.algorithms import IFCA, FedAvg, LocalOnly
from umbel.algorithms.base import Algorithm
from umbel.client.work import LocalTraining
from umbel.report import standing_tables, terminal
from umbel.report.comparing import sheet
from umbel.report.evenness import evenness
from umbel.report.writing import write_report
from umbel.runs.folder import RunFolder
from umbel.runs.outcomes import by_method
from umbel.runs.result import Result
from umbel.runs.run import Run
from umbel.runs.run_tables import results
from umbel.testing import blobs, mlp

LOCAL = LocalTraining(epochs=1)

METHODS: dict[str, Algorithm[Any]] = {
    "fedavg": FedAvg(LOCAL),
    "ifca": IFCA(num_clusters=2, local=LOCAL),
    "local-only": LocalOnly(LOCAL),
}


@pytest.fixture(scope="module")
def natural(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three methods under two seeds, on clients of whom attributes are known, but no groups."""
    place = tmp_path_factory.mktemp("natural")
    known = {"wrist": ("left", "right") * 4, "a very long attribute": tuple("aabbccdd")}
    federation = replace(blobs(), groups=None, attributes=known)
    for name, method in METHODS.items():
        for seed in range(2):
            run = Run(method, federation, mlp(), seed=seed)
            run.save(place / f"{name}-seed{seed}", rounds=3)
    return place


def of(place: Path) -> list[Result]:
    return [Result(RunFolder(path)) for path in sorted(place.glob("*-seed*"))]


def printed(place: Path, width: int) -> str:
    console = Console(width=width, file=io.StringIO())
    runs = of(place)
    console.print(terminal.comparison(runs), *standing_tables.statistics(runs), sep="\n")
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert isinstance(text, str)
    return text


def test_attributes_stand_in_place_of_planted_groups_and_all_fits_80_columns(natural: Path) -> None:
    text = printed(natural, 80)
    assert "ARI" not in text
    for head in ("worst", "tenth", "spread", "one model", "AMI", "wrist", "a very lon", "Holm"):
        assert head in text, head
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text


def test_the_means_over_seeds_are_those_of_the_tables_of_runs(natural: Path) -> None:
    table = results(natural)
    methods = by_method(of(natural))
    for (name, _), each in zip(methods, evenness(methods), strict=True):
        rows = [row for row in table.runs if row["name"] == name]
        worst = sum(row["worst_tenth"] for row in rows) / 2
        assert each.mean(lambda f: f.worst_tenth, 9) == f"{worst:.9f}"
        agrees = sum(row["ami_wrist"] for row in rows) / 2
        assert each.agrees("wrist") == f"{agrees:.2f}"
        alone = [row["worse_than_alone"] for row in rows]
        assert (None in alone) == (name == "local-only")
        assert [row["spread"] for row in rows] == pytest.approx([r["accuracy_std"] for r in rows])


def test_the_tables_of_runs_know_every_pair(natural: Path) -> None:
    found = results(natural).differences()
    assert len(found) == 3
    assert set(found.column("results")) == {16}
    assert set(found.column("seeds")) == {2}
    for row in found:
        assert row["low"] <= row["gain"] <= row["high"]
        assert row["p_holm"] >= row["p_value"]


def test_the_sheet_and_the_page_have_the_same_columns(natural: Path, tmp_path: Path) -> None:
    heads = sheet(by_method(of(natural))).heads
    assert "worst tenth" in heads
    assert "AMI with wrist" in heads
    assert "ARI" not in heads
    (file,) = write_report(natural, tmp_path / "report.html")
    page = Page(file.read_text(encoding="utf-8"))
    assert "Every pair of methods" in page.headings
    for head in ("surely worse than alone", "AMI with wrist", "p corrected (Holm)"):
        assert head in page.said


def test_the_page_of_one_run_says_what_its_clusters_agree_with(
    natural: Path, tmp_path: Path
) -> None:
    (file,) = write_report(natural / "ifca-seed0", tmp_path / "report.html")
    page = Page(file.read_text(encoding="utf-8"))
    for words in ("AMI with wrist", "Worst tenth of clients", "right", "test examples"):
        assert words in page.said
