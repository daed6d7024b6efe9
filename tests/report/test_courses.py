"""Runs as figures and as tables, from Python."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import umbel
from tests.federations import blobs
from umbel.report.figures.drawing import Drawing
from umbel.run.records import Record


def course(count: int = 3, lift: float = 0.0) -> list[Record]:
    """A run whose accuracy rises by 0.1 a round, with all evaluated but the second."""
    whole = [
        Record(
            n,
            loss=1.0 - n / 10,
            accuracy=0.1 * n + lift,
            worst=0.0,
            num_clusters=2,
            ari=0.5,
            bytes_up=10**6,
        )
        for n in range(count)
    ]
    return [replace(r, loss=None, accuracy=None) if r.round == 1 else r for r in whole]


def lines(figure: Drawing) -> dict[str, dict[str, list[tuple[float, float]]]]:
    """The points of each line of each panel."""
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for view in figure.spec["concat"]:
        of = found.setdefault(" ".join(view["title"]), {})
        for row in view["data"]["values"]:
            of.setdefault(row["line"], []).append((row["x"], row["y"]))
    return found


def test_a_run_is_drawn_in_the_rounds_in_which_it_was_measured() -> None:
    pytest.importorskip("vl_convert")
    figure = umbel.plot(course())
    (accuracy,), (agreement,), (clusters,) = (panel.values() for panel in lines(figure).values())
    assert [x for x, _ in accuracy] == [1.0, 3.0]
    assert [y for _, y in accuracy] == pytest.approx([0.0, 0.2])
    assert [y for _, y in agreement] == [0.5] * 3
    assert [y for _, y in clusters] == [2] * 3
    assert figure._repr_png_().startswith(b"\x89PNG")


def test_seeds_of_a_method_are_one_line_in_a_band(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    figure = umbel.plot({"flacc": [course(), course(4, lift=0.2)], "<b>": course()})
    accuracy = lines(figure)["Accuracy"]
    assert [y for _, y in accuracy["flacc"]] == pytest.approx([0.1, 0.3])
    assert set(accuracy) == {"flacc", "<b>"}
    rows = figure.spec["concat"][0]["data"]["values"]
    assert {row["line"] for row in rows if "low" in row} == {"flacc"}
    figure.save(tmp_path / "figure.png")
    assert (tmp_path / "figure.png").stat().st_size > 5000


def test_without_accuracy_and_groups_there_are_losses_and_clusters() -> None:
    pytest.importorskip("vl_convert")
    plain = [replace(record, accuracy=None, ari=None) for record in course()]
    assert list(lines(umbel.plot(plain))) == ["Loss", "Clusters"]
    assert umbel.table(plain).heads == ("round", "loss", "ARI", "clusters", "MB down", "MB up")


def test_a_table_of_one_run_has_rounds_and_one_of_several_has_runs() -> None:
    alone = umbel.table(course(30))
    assert [row[0] for row in alone.rows] == [str(n) for n in range(2, 30, 3)]
    assert alone.rows[-1] == ("29", "2.900", "0.00", "0.50", "2", "0", "30")
    both = umbel.table({"ifca": course(), "flacc": [course(), course(lift=0.2)]})
    assert both.rows == (
        ("ifca", "0.200", "0.00", "0.50", "2", "0", "3"),
        ("flacc", "0.300±0.100", "0.00", "0.50±0.00", "2.0", "0", "3"),
    )
    assert "<td" in both._repr_html_()
    assert repr(both).startswith("run       accuracy  worst client")


@pytest.mark.parametrize(
    ("runs", "message"),
    [
        ([], "records: an empty list is not a list of at least one record of a run"),
        ({"flacc": []}, "flacc: an empty list is not a list of at"),
        ({"flacc": [1.0]}, "flacc: 'float' is not a list of the records of a run"),
    ],
)
def test_what_are_no_records_is_refused(runs: Any, message: str) -> None:
    for take in (umbel.plot, umbel.table):
        with pytest.raises(umbel.UsageError) as refused:
            take(runs)
        assert str(refused.value).startswith(message)


def test_clients_stand_above_their_clusters_in_the_shapes_of_their_groups() -> None:
    pytest.importorskip("vl_convert")
    federation = blobs()
    state = umbel.State(torch.zeros(3, 2), torch.tensor([2, 0, 2, 0, 2, 0]))
    spec = umbel.plot_clusters(state, federation).spec
    dots = [(dot["kind"], dot["x"], dot["y"]) for dot in spec["data"]["values"]]
    assert dots == [*(("0", 0, n) for n in (1, 2, 3)), *(("1", 1, n) for n in (1, 2, 3))]
    labels = spec["layer"][-1]["data"]["values"]
    assert {label["text"] for label in labels} == set(federation.names)
    with pytest.raises(umbel.UsageError, match="state: has 6 clients, but the federation has"):
        umbel.plot_clusters(state, blobs((5, 6)))


def test_results_draw_themselves_and_write_their_report(tmp_path: Path) -> None:
    pytest.importorskip("vl_convert")
    experiment = umbel.read(
        umbel.find_experiment("flacc-digits"), ["rounds=2", "scenario.clients=8"]
    )
    folder = umbel.RunFolder.create(tmp_path / "first", experiment)
    records = list(umbel.execute(folder, umbel.Sources.default()))
    result = umbel.load(tmp_path / "first")
    assert lines(umbel.plot(result)) == lines(umbel.plot(records))
    assert lines(umbel.plot({"flacc": result})) != {}
    assert len(umbel.plot_clusters(result).spec["data"]["values"]) == len(result.clusters)
    page = umbel.write_report(str(tmp_path / "first"), out=tmp_path / "page.html")
    assert page == tmp_path / "page.html"
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")
