"""What is on the pages, read without a browser."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable, Mapping
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from tests.report.pages import NASTY, Page, compared, made, many, own
from tests.shell import Shell
from umbel.checks import UsageError
from umbel.folder.how_to_continue import ADVICE_FILE, NODES
from umbel.folder.run_folder import RunFolder
from umbel.report.pages import rendering
from umbel.report.pages.writing import write_files

vl_convert = pytest.importorskip("vl_convert", reason="the extra umbel[report] is not installed")

SECTIONS = ["Round by round", "Clusters and clients", "What the clusters rest on"]
LAST = ["Traffic, work and time", "Run it again"]


def report(path: Path, tmp_path: Path) -> Page:
    (file,) = write_files(path, tmp_path / "report.html")
    return Page(file.read_text(encoding="utf-8"))


@pytest.fixture(scope="module", params=["run", "own", "comparison"])
def page(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Page:
    """Reports of every kind."""
    run = partial(made, "flacc-digits", "rounds=25")
    makers: Mapping[str, Callable[[], Path]]
    makers = {"run": run, "own": own, "comparison": compared}
    return report(makers[request.param](), tmp_path_factory.mktemp("page"))


def test_a_page_loads_nothing(page: Page) -> None:
    for element in page.elements:
        for name in ("src", "href", "srcset", "action", "data"):
            value = element.attributes.get(name)
            assert value is None or value.startswith(("#", "data:,")), element
    style = re.findall(r"<style>(.*?)</style>", page.text, re.DOTALL)
    assert "url(" not in "".join(style)
    assert "@import" not in "".join(style)
    assert len(page.text.encode()) < 2e6


def test_a_page_forbids_browsers_to_load_anything(page: Page) -> None:
    (policy,) = [
        e.attributes["content"]
        for e in page.elements
        if e.attributes.get("http-equiv") == "Content-Security-Policy"
    ]
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert "http" not in policy


def test_every_figure_says_what_it_shows_and_is_one_that_is_drawn(page: Page) -> None:
    drawings = [e for e in page.elements if e.attributes.get("class") == "drawing"]
    assert len(drawings) == len(page.titles) == len(page.figures)
    assert len(page.figures) >= 6
    assert all(len(e.attributes["aria-label"] or "") > 20 for e in drawings)
    for figure in page.figures:
        assert "<svg" in vl_convert.vegalite_to_svg({**figure, "width": 300, "height": 200})


def test_headings_are_in_order_and_links_lead_somewhere(page: Page) -> None:
    levels = [int(e.name[1]) for e in page.elements if re.fullmatch("h[1-6]", e.name)]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    names = [e.attributes["id"] for e in page.elements if "id" in e.attributes]
    assert len(names) == len(set(names))
    for element in page.elements:
        if element.name == "a":
            assert str(element.attributes["href"])[1:] in names
        if element.name == "label":
            assert element.attributes["for"] in names


def test_a_run_with_groups_has_everything(tmp_path: Path) -> None:
    page = report(made("flacc-digits", "rounds=25"), tmp_path)
    assert page.headings == [*SECTIONS, *LAST]
    assert page.titles == [
        *("Accuracy", "Loss", "Agreement with the planted groups", "Clusters"),
        *("Who is in which cluster", "Client by client", "Similarity of clients after round 18"),
        *("Merges", "Smallest cross-similarity of the best pair", "Traffic", "Work", "Time"),
    ]
    for words in ("ARI", "purity", "umbel run experiment.toml", "n_merge = 2", "torch 2", "1.00"):
        assert words in page.said
    assert "not finished" not in page.said
    figures = dict(zip(page.titles, page.figures, strict=True))
    assert "1 → 4 models" in texts_in(figures["Accuracy"])
    assert texts_in(figures["Who is in which cluster"]).count("cluster 0: 5") == 1
    cells = figures["Similarity of clients after round 18"]["layer"][0]["data"]["values"]
    assert [len(row["value"]) for row in cells] == [20] * 20
    assert "planted group" in cells[0]["name"]


def test_clusters_have_the_same_colours_in_all_figures(tmp_path: Path) -> None:
    page = report(made("flacc-digits", "rounds=25"), tmp_path)
    scales = [
        encoding["color"]["scale"]
        for figure in page.figures
        for layer in figure["layer"]
        if "domain" in (encoding := layer["encoding"]).get("color", {}).get("scale", {})
        if encoding["color"]["scale"]["domain"] == ["0", "1", "2", "3"]
        if layer["mark"] != "text" and layer["mark"] and "fontSize" not in layer["mark"]
    ]
    assert len(scales) == 3
    assert all(scale == scales[0] for scale in scales)


def texts_in(figure: dict[str, Any]) -> list[str]:
    """The texts at positions of a figure."""
    layers = [layer for layer in figure["layer"] if "text" in layer.get("encoding", {})]
    values = [row for layer in layers for row in layer.get("data", {}).get("values", [])]
    return [row["text"] for row in values]


def test_a_run_without_groups_says_nothing_of_agreement(tmp_path: Path) -> None:
    page = report(own(), tmp_path)
    assert page.headings == [*SECTIONS, "Traffic, work and time", "Absent clients", "Run it again"]
    for word in ("ARI", "purity", "planted"):
        assert word not in page.said
        assert word not in json.dumps(page.figures)
    assert "times refused" in page.said


def test_a_run_with_membership_says_who_came_and_left(tmp_path: Path) -> None:
    events = "membership.events=[{round=1, joins=['7']}, {round=2, leaves=['0', '7']}]"
    page = report(made("flacc-digits", "rounds=4", "scenario.clients=8", events), tmp_path)
    assert page.headings == [*SECTIONS, LAST[0], "Clients that came and left", LAST[1]]
    assert "round came left 2 7 3 0, 7" in " ".join(page.said.split())


def test_names_are_words_and_never_programs(tmp_path: Path) -> None:
    page = report(own(), tmp_path)
    assert NASTY in page.said  # as a parser reads it, after unescaping
    assert NASTY not in page.text
    # The figures, their looks, what draws them, and the page's own scripts; none is a name.
    scripts = [e for e in page.elements if e.name == "script"]
    assert len(scripts) == len(page.figures) + 4
    assert "alert(1)" not in [e.name for e in page.elements]
    assert not [e for e in page.elements if e.name in ("i", "b")]


@pytest.mark.thorough
def test_of_many_clients_a_share_is_drawn_and_the_page_says_so(tmp_path: Path) -> None:
    page = report(many(), tmp_path)
    assert "of their 3000 clients are drawn" in page.said
    assert "300 of 3,000 clients shown" in page.said
    assert re.search(r"Of \d+ clients the 100 worst are drawn", page.said)
    assert all(len(f.get("data", {}).get("values", [])) < 2000 for f in page.figures)
    assert "Of 3000 clients 200 are shown." in page.said
    (rows,) = re.findall(r'id="clients-all">(.*?)</script>', page.text)
    assert len(json.loads(rows)) == 3000
    page = report(many(num_clusters=None), tmp_path)
    assert re.search(r"The 60 largest of 2\d{3} clusters are shown", page.said)
    assert re.search(r"There are 2,?\d{3} more clusters\.", page.said)


@pytest.mark.parametrize("stop", [5, None])
def test_a_run_over_flower_is_continued_and_made_again_there(
    stop: int | None, tmp_path: Path
) -> None:
    folder = shutil.copytree(own(rounds=9, stop=stop), tmp_path / "over-flower")
    (folder / NODES).write_text("{}")
    said = report(folder, tmp_path).said
    assert "the same flwr run makes it again" in said
    assert "umbel run experiment.toml" not in said
    assert ("the same flwr run continues it" in said) == (stop is not None)
    assert "umbel resume" not in said
    (folder / "clusters.csv").write_text("")
    if stop is None:
        with pytest.raises(UsageError, match="and the same `flwr run` writes it"):
            RunFolder(folder).clients()


def test_a_run_that_is_not_finished_says_so(tmp_path: Path) -> None:
    page = report(own(rounds=9, stop=5), tmp_path)
    assert "This run is not finished: 5 of 9 rounds are done." in page.said
    assert page.headings[0] == "Round by round"
    assert "Who is in which cluster" in page.titles
    assert "Client by client" not in page.titles
    folder = RunFolder(tmp_path / "nothing")
    folder.path.mkdir()
    folder.write("experiment.toml", RunFolder(own()).file("experiment.toml").read_text())
    with pytest.raises(UsageError, match="a run with at least one finished round"):
        write_files(folder.path)


def test_a_regression_is_told_by_its_loss(tmp_path: Path) -> None:
    page = report(made("cfl-gp-linear", "rounds=5", "scenario.examples=40"), tmp_path)
    assert "accuracy" not in page.said.lower()
    assert "Worst client's loss" in page.said
    assert page.titles[0] == "Loss"
    assert "Singular values after round 5" in page.titles


@pytest.mark.parametrize(
    ("name", "title"),
    [
        ("lcfl-digits", "Distance of clients after round 3"),
        ("cfl-gp-digits", "Clients' features after round 1"),
        ("ifca-digits", "Loss of every model on each client after round 3"),
    ],
)
def test_what_clusters_rest_on_is_shown_for_each_method(
    name: str, title: str, tmp_path: Path
) -> None:
    page = report(made(name, "rounds=3"), tmp_path)
    assert title in page.titles


def test_the_command_to_repeat_a_stopped_run_has_the_goal_that_stopped_it(
    tmp_path: Path, umbel: Shell
) -> None:
    umbel("run", "both/flacc.toml", "--until", "loss=63.456789012")
    page = report(umbel.folder / "runs" / "flacc-seed0", tmp_path)
    assert "umbel run experiment.toml --until loss=63.456789012" in page.said
    again = ["--until", "loss=0.0001", "--max-time", "0.000001", "--runs-dir", "timed"]
    umbel("run", "both/flacc.toml", *again)
    page = report(umbel.folder / "timed" / "flacc-seed0", tmp_path)
    assert "--until" not in page.said
    assert "It does all 4 rounds; this run was stopped." in page.said


def test_a_method_without_evidence_has_no_such_section(tmp_path: Path) -> None:
    page = report(made("fedavg-digits", "rounds=2"), tmp_path)
    assert "What the clusters rest on" not in page.headings


def test_a_comparison_has_methods_side_by_side_and_a_table_in_three_forms(tmp_path: Path) -> None:
    page = report(compared(), tmp_path)
    assert page.headings == [
        *("Methods side by side", "Client by client", "Every pair of methods"),
        *("Round by round", "Run it again"),
    ]
    assert "2 methods, 2 seeds (0, 1)." in page.said
    assert "umbel compare two-methods --seeds 2" in page.said
    accuracy = page.figures[page.titles.index("Accuracy")]
    assert {row["line"] for row in accuracy["data"]["values"]} == {"fedavg", "ifca"}
    assert all(row["low"] <= row["y"] <= row["high"] for row in accuracy["data"]["values"])
    markdown, sheet, latex = texts(page.text)
    assert markdown.splitlines()[0].startswith("| method | accuracy | worst client | loss |")
    assert markdown.splitlines()[1] == "| --- |" + " ---: |" * (
        markdown.split("\n")[0].count("|") - 2
    )
    assert sheet.splitlines()[0].startswith("method,accuracy,accuracy std,worst client,")
    assert len({line.count(",") for line in sheet.splitlines()}) == 1
    assert latex.startswith("\\begin{tabular}{lrrr")
    assert r"$\pm$" in latex


def texts(page: str) -> list[str]:
    return re.findall(r"<textarea[^>]*>(.*?)</textarea>", page, re.DOTALL)


def test_a_comparison_with_a_run_that_is_not_finished_names_it(tmp_path: Path) -> None:
    path = shutil.copytree(compared(1, "scenario.clients=8"), tmp_path / "runs")
    for name in ("advice", "no-round-seed0"):
        (path / name).mkdir()
        shutil.copy(path / "ifca-digits-seed0" / "experiment.toml", path / name)
    (path / "advice" / ADVICE_FILE).write_text("{}")
    (path / "ifca-digits-seed0" / "clusters.csv").unlink()
    page = report(path, tmp_path)
    assert "Not finished, so they are left out: ifca-digits-seed0, no-round-seed0." in page.said
    (path / "fedavg-digits-seed0" / "clusters.csv").unlink()
    page = report(path, tmp_path)
    assert "so what follows is so far: fedavg-digits-seed0, ifca-digits-seed0." in page.said
    assert "Without a finished round, so they are left out: no-round-seed0." in page.said
    assert "ifca" in texts(page.text)[0]


@pytest.mark.long
def test_the_command_writes_the_page_and_its_figures(umbel: Shell) -> None:
    umbel("compare", "both", "--seeds", "1")
    printed, _ = umbel("report", "runs/both/flacc-seed0", "--figures", "pictures")
    assert printed.splitlines()[0].startswith("runs/both/flacc-seed0/report.html: ")
    names = {file.name for file in (umbel.folder / "pictures").iterdir()}
    assert {"accuracy.png", "accuracy.svg", "accuracy.pdf", "who-is-in-which-cluster.png"} <= names
    assert (umbel.folder / "runs/both/flacc-seed0/report.html").is_file()
    table, _ = umbel("show", "runs/both", "--latex")
    assert table.startswith("\\begin{tabular}{lrr")
    assert "flacc & " in table
    umbel("report", "runs/both", "--out", "elsewhere/page.html")
    assert (umbel.folder / "elsewhere" / "page.html").is_file()
    assert "is not the folder of a run, or of runs" in umbel.refused("report", "both")
    assert "is not the folder of a run, or of runs" in umbel.refused("report", "gone")


def test_without_the_library_the_extra_is_named(
    umbel: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    missing: Any = None
    monkeypatch.setitem(sys.modules, "vl_convert", missing)
    assert 'pip install "umbel[report]"' in umbel.refused("report", "both")


def test_the_script_of_pages_is_kept_and_made_where_nothing_can_be_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def made() -> str:
        rendering._vega.cache_clear()
        return rendering._vega()

    monkeypatch.setenv("UMBEL_CACHE_DIR", str(tmp_path / "cache"))
    script = made()
    (kept,) = (tmp_path / "cache").iterdir()
    monkeypatch.setattr("vl_convert.javascript_bundle", lambda *_: "made")
    assert made() == script == kept.read_text()
    (tmp_path / "file").touch()
    monkeypatch.setenv("UMBEL_CACHE_DIR", str(tmp_path / "file"))
    assert made() == "made"
    rendering._vega.cache_clear()
