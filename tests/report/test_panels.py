"""Figures of a report: names of their files, marks in them, and the numbers beside them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from umbel.algorithms import FedAvg
from umbel.client.work import LocalTraining
from umbel.folder.clients_file import Client
from umbel.report.by_round import MOST_MARKS, marks, quality
from umbel.report.clients import said
from umbel.report.figures.charts import Chart, Dot, Scatter
from umbel.report.figures.panels import LONGEST_NAME_BYTES, Panel, described
from umbel.report.html.page import listing
from umbel.report.terminal import results as terminal
from umbel.result.run import Result, Run
from umbel.run.records import Record
from umbel.summary import duration, three_digits
from umbel.testing import blobs, mlp


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("Clients' features after round 3", "clients-features-after-round-3"),
        ("macro_f1 (of all)", "macro-f1-of-all"),
        ("α", "α"),
        ("精度", "精度"),
        ("%!", "figure"),
        ("../..", "figure"),
        ("精" * 200, "精" * (LONGEST_NAME_BYTES // 3)),
    ],
)
def test_files_of_figures_are_named_by_letters_and_digits_of_any_script(
    title: str, name: str
) -> None:
    assert Panel(Chart(title, "x", "y", ())).file_name == name


@dataclass(frozen=True)
class Split(Result):
    """A run that is said to have one model more after each round, of which the last is new."""

    @property
    def records(self) -> list[Record]:
        (record,) = super().records
        last = {"last_change": 9.0}
        return [replace(record, round=n, num_models=n + 1, measures=last) for n in range(10)]


def test_of_many_changes_the_first_are_marked_and_the_last_and_the_rest_are_counted(
    tmp_path: Path,
) -> None:
    run = Run(FedAvg(LocalTraining(epochs=1)), blobs(), mlp()).save(tmp_path / "run", rounds=1)
    split = Split(run.folder)
    texts = [mark.text for mark in marks(split)]
    assert texts[:-1] == [f"{n} → {n + 1} models" for n in range(1, MOST_MARKS + 1)]
    assert texts[-1] == "last change of clusters"
    (note,) = (panel.note for panel in quality(split) if panel.figure.title == "Clusters")
    assert note == "The number of models changed 9 times; the first 6 changes are marked."
    (note,) = (panel.note for panel in quality(run) if panel.figure.title == "Clusters")
    assert note == ""


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.0, "0"), (0.00005, "0.00005"), (1.2345, "1.23"), (999.6, "1000"), (12345.6, "12346")],
)
def test_numbers_beside_figures_have_no_powers_of_ten(value: float, text: str) -> None:
    assert three_digits(value) == text


def test_one_is_in_the_singular() -> None:
    alone = Client("a", 0, 0, examples=1)
    assert said(alone) == "client a\ncluster 0\n1 training example"
    dot = Dot(0, 0, 1, "x", "")
    assert (
        described(Scatter("", "", "", (dot,), "group", is_map=True)) == "1 dot in 1 kind (group)."
    )
    assert "1 of 1 client shown" in listing("clients", ["client"], [["a"]]).text
    table = terminal.absences([Record(0, missing=(0,)), Record(1)], ["a"])
    assert table is not None
    assert table.caption == "1 client was absent at times, in 1 of 2 rounds"
    assert duration(1.2) == "1 second"
