"""Names that somebody else chose are shown as they are: nothing runs, breaks or vanishes."""

from __future__ import annotations

import csv
import io
import json
import logging
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest
from rich.console import Console

import umbel as package
from tests.shell import SMALL, Shell
from umbel.cli import Plain
from umbel.data.sources import Sources
from umbel.files.spreadsheet_cells import csv_rows, csv_text
from umbel.folder.clients_file import Client, read_rows
from umbel.folder.execution import advance
from umbel.folder.run_folder import RunFolder
from umbel.report.figures.charts import Chart, Line
from umbel.report.figures.drawing import draw
from umbel.report.terminal import results as terminal
from umbel.report.terminal.tables import frameless, row
from umbel.result.table import Table

STRANGE = (
    *("=cmd|' /C calc'!A0", "+1", "-2+3", "@SUM(A1)", "'=twice", "''", "a,b;c", "x;=1+1;y"),
    *("[/a]", "[red]x", "<script>alert(1)</script>", '"><img src=x onerror=alert(1)>'),
    *("a\nb", "\x1b[31mred\x1b[2J", "\u202egnp", "\x9b31m", "\ttab", "\r=1", "$x$", "_a", "é ß"),
)


@pytest.fixture
def strange(umbel: Shell) -> RunFolder:
    """A run whose clients are called so."""
    (umbel.folder / "ifca.toml").write_text(SMALL.format(name="ifca"))
    settings = ["rounds=2", f"scenario.clients={len(STRANGE)}", "participation=0.3"]
    experiment = package.read("ifca.toml", [*settings, "algorithm.num_clusters=2"])
    folder = RunFolder.create("runs/ifca-seed0", experiment)
    run = experiment.open(Sources.default())
    object.__setattr__(run.federation, "names", STRANGE)  # no federation takes all of these
    list(advance(folder, run))
    refused = replace(folder.records()[-1], missing=(1, 9), refused={7: "\x1b[2J[/a] because"})
    folder.lines.write([*folder.records()[:-1], refused])
    return folder


def acting(text: str) -> list[str]:
    """What a terminal would act on."""
    return re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]", text)


@pytest.mark.parametrize("options", [[], ["--csv", "--rows", "clients"]])
def test_nothing_acts_on_a_terminal(options: list[str], strange: RunFolder, umbel: Shell) -> None:
    umbel.monkeypatch.setenv("COLUMNS", "300")
    printed, _ = umbel("show", str(strange.path), *options)
    assert acting(printed) == []
    if not options:
        for name in ("=cmd|", "[/a]", "[red]x", "<script>", "a\\nb", "\\x1b[31mred", "\\u202egnp"):
            assert name in printed


def test_the_rows_of_clients_are_cells_and_no_formulas(strange: RunFolder, umbel: Shell) -> None:
    raw = strange.file("clusters.csv").read_bytes().decode()
    written = [row["client"] for row in csv.DictReader(io.StringIO(raw, newline=""))]
    printed, _ = umbel("show", str(strange.path), "--csv", "--rows", "clients")
    rows = list(csv.DictReader(io.StringIO(printed, newline="")))
    for cells in (written, [each["client"] for each in rows]):
        assert len(cells) == len(STRANGE)
        assert [cell for cell in cells if cell[:1] in ("=", "+", "-", "@", "\t", "\r")] == []
    assert [client.name for client in read_rows(strange.file("clusters.csv"))] == [*STRANGE]
    assert rows[1]["loss"][0].isdecimal()
    assert set(package.load(strange.path).clusters) == set(STRANGE)
    tables, _ = umbel("show", str(strange.path), "--json", "--rows", "clients")
    assert [row["client"] for row in json.loads(tables)] == [*STRANGE]


def begins(text: str) -> list[str]:
    """What begins a cell, whatever a spreadsheet takes for the end of the cell before."""
    return [cell for cell in re.split("[;\t\r\n]", text) if cell[:1] in ("=", "+", "-", "@")]


@pytest.mark.parametrize("text", [*STRANGE, "\t\r\n;=1"])
def test_no_part_of_a_cell_is_a_formula(text: str) -> None:
    written = csv_text([[text]])
    assert begins(next(csv.reader(io.StringIO(written, newline="")))[0]) == []
    assert csv_rows(written) == [[text]]
    table = Table(("a", text), ({"a": 1, text: text},))
    head, row = csv.reader(io.StringIO(table.to_csv()))
    assert begins(head[1]) == begins(row[1]) == []


@pytest.mark.parametrize("text", STRANGE)
def test_what_is_no_formula_reads_back(text: str) -> None:
    assert csv_rows(csv_text([[text]])) == [[text]]
    assert json.loads(Table.of([{"a": text}]).to_json()) == [{"a": text}]


class Elements(HTMLParser):
    """The elements of a page, with their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, set[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, {name for name, _ in attrs}))


def test_a_page_has_no_element_of_theirs(strange: RunFolder, umbel: Shell) -> None:
    umbel("report", str(strange.path))
    page = Elements()
    page.feed(strange.file("report.html").read_text())
    assert not [tag for tag, _ in page.found if tag == "img"]
    assert not [names for _, names in page.found if any(n.startswith("on") for n in names)]
    assert {tag for tag, _ in page.found} >= {"table", "script", "figure"}
    text = strange.file("report.html").read_text()
    assert "<script>alert" not in text
    assert "&lt;script&gt;alert" in text
    shown = Elements()
    shown.feed(package.load(strange.path)._repr_html_())
    assert {tag for tag, _ in shown.found} <= {"div", "table", "thead", "tbody", "tr", "th", "td"}
    assert acting(repr(package.load(strange.path))) == []


@pytest.mark.parametrize("name", STRANGE[8:14:2])
def test_a_name_is_drawn_and_listed(name: str, tmp_path: Path) -> None:
    lines = (Line(name, (1.0, 2.0), (1.0, 2.0)), Line("b", (1.0, 2.0), (2.0, 1.0)))
    draw([Chart(name, "x", "y", lines)], tmp_path / "chart.svg")
    assert (tmp_path / "chart.svg").stat().st_size
    table = frameless("a", caption="c")
    row(table, name)
    console = Console(width=200, file=io.StringIO(), force_terminal=False)
    console.print(table)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert acting(printed) == []
    assert name.strip() in printed or "\\" in printed


def test_logs_do_nothing_to_a_terminal() -> None:
    record = logging.LogRecord("umbel", logging.WARNING, "", 0, "client %s", ("\x1b[2J",), None)
    assert Plain("%(message)s").format(record) == "client \\x1b[2J"


def test_names_with_spaces_and_commas_can_be_told_apart() -> None:
    names = ["Größe 0-0", "Größe / 0-2", "Bern, Ost", "a"]
    clients = [Client(name, n, 0, group=f"group {n}") for n, name in enumerate(names)]
    console = Console(width=200, file=io.StringIO(), force_terminal=False)
    console.print(terminal.clusters(clients))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert 'Größe 0-0, Größe / 0-2, "Bern, Ost", a ' in text
    assert "group 0, group 1, group 2, group 3 " in text
